# The shells of plan.json as dev shells, packages and apps: the same text for every project.
#   { devShells, packages, apps } = import ./.wavegen/shells.nix { inherit nixpkgs; };
{
  nixpkgs,
  # Sources of wavegen, for a project that is rendered without the launcher (vendor: false).
  wavegen ? null,
  # nixpkgs ends x86_64-darwin with 26.11: it is no longer in this list then, and importing nixpkgs for it throws.
  systems ? nixpkgs.lib.intersectLists [
    "x86_64-linux"
    "aarch64-linux"
    "x86_64-darwin"
    "aarch64-darwin"
  ] nixpkgs.lib.systems.flakeExposed,
}:
let
  inherit (nixpkgs) lib;
  plan = builtins.fromJSON (builtins.readFile ./plan.json);
  lock = builtins.fromJSON (builtins.readFile ./lock.json);

  # What shells are started with: the files that the lock lists, each with the digest that it has there, and no other.
  rendered = lib.fileset.toSource {
    root = ./.;
    fileset = lib.fileset.unions (
      map listed (builtins.filter (name: builtins.match "\\.wavegen/((launcher|rules|seccomp)/.*|plan\\.json)" name != null) (builtins.attrNames lock.outputs))
    );
  };
  listed =
    name:
    let
      file = ./.. + "/${name}";
    in
    if !builtins.pathExists file then
      throw "wavegen: ${name} is missing (run wavegen render; in a git repository also: git add -N .wavegen)"
    else if "sha256:${builtins.hashFile "sha256" file}" != lock.outputs.${name} then
      throw "wavegen: ${name} is not what was rendered (look at what changed, then run wavegen render)"
    else
      file;

  # An input that is handed in is the launcher, whatever somebody added to the repository and its lock.
  isVendored = wavegen == null && builtins.any (lib.hasPrefix ".wavegen/launcher/") (builtins.attrNames lock.outputs);
  launcher =
    if wavegen == null then
      throw "wavegen: this project holds no launcher (vendor: false): import ./.wavegen/shells.nix { inherit nixpkgs wavegen; }, with an input wavegen"
    else
      "${wavegen}/wavegen/launcher";

  # Attribute names of flake outputs are words for the nix command line: other characters would need quotes there.
  packageName = lib.concatStrings (map (c: if builtins.match "[A-Za-z0-9_-]" c == null then "-" else c) (lib.stringToCharacters plan.name));

  perSystem = lib.genAttrs systems (
    system:
    let
      pkgs = import nixpkgs {
        inherit system;
        config.allowUnfreePredicate = package: builtins.elem (lib.getName package) plan.unfree;
      };
      inherit (pkgs.stdenv.hostPlatform) isLinux;

      find =
        wanted:
        lib.attrByPath wanted.attribute
          (throw "${wanted.origin}: packages: nixpkgs has no attribute ${lib.concatStringsSep "." wanted.attribute}")
          pkgs;
      found = shell: map find shell.packages;
      # What exists for Linux alone must not break the evaluation elsewhere.
      here = shell: if isLinux then found shell else builtins.filter (lib.meta.availableOn pkgs.stdenv.hostPlatform) (found shell);
      missing = shell: lib.subtractLists (map lib.getName (here shell)) (map lib.getName (found shell));

      # On the PATH of every shell. The launcher takes programs of the system first, which a policy of the kernel may know by
      # their paths (AppArmor and bwrap), and these where there are none.
      tools = [
        pkgs.bashInteractive
        pkgs.coreutils
      ];
      launcherTools = [
        pkgs.bubblewrap
        pkgs.python3
        pkgs.bashInteractive
      ];

      # The launcher with its byte code, which Python reads without a look at the source, and the rules beside it.
      tree = pkgs.runCommandLocal "wavegen-${packageName}" { } ''
        mkdir "$out"
        cp -R ${rendered} "$out/.wavegen"
        chmod -R u+w "$out"
        ${lib.optionalString (!isVendored) ''rm -rf "$out/.wavegen/launcher"; cp -R ${launcher} "$out/.wavegen/launcher"; chmod -R u+w "$out"''}
        PYTHONHASHSEED=0 ${pkgs.python3}/bin/python3 -m compileall -q --invalidation-mode unchecked-hash "$out/.wavegen/launcher"
      '';

      start = name: [
        "${pkgs.python3}/bin/python3"
        "-I"
        "-S"
        "-X"
        "utf8"
        "${tree}/.wavegen/launcher/__main__.py"
        "${tree}/.wavegen/bin/${name}"
        "--tools=${lib.makeBinPath launcherTools}"
      ];

      wrapper =
        name: shell:
        pkgs.writeTextFile {
          name = "wavegen-${name}";
          destination = "/bin/${name}";
          executable = true;
          text = ''
            #!${pkgs.bash}/bin/bash -p
            PATH=${lib.escapeShellArg (lib.makeBinPath (here shell ++ tools))}''${PATH:+:$PATH}
            export PATH
            exec ${lib.escapeShellArgs (start name)} "$@"
          '';
          meta.mainProgram = name;
        };

      # What the Dockerfile makes of a distribution's packages, made of these: nix build .#image, then docker load <result.
      # Where containers are shown this host's store, its links lead there to the same files.
      reference = builtins.match "(.+):([^/:@]+)" plan.image.reference;
      image = pkgs.dockerTools.buildLayeredImage {
        name = if reference == null then plan.image.reference else builtins.head reference;
        tag = if reference == null then "latest" else builtins.elemAt reference 1;
        contents =
          lib.unique (lib.concatMap found (builtins.filter (shell: shell.fenced) (builtins.attrValues plan.shells)) ++ tools)
          ++ [
            pkgs.git
            # The last step before a command, and the probes.
            pkgs.python3
            pkgs.dockerTools.usrBinEnv
            pkgs.dockerTools.caCertificates
          ];
        config = {
          Env = [ "PATH=/bin" ];
          # Whoever starts it by hand is nobody in it; our containers are told who they are.
          User = "65534:65534";
          Cmd = [ "bash" ];
        };
      };
      # A digest says what an image is, and nobody can build one to it.
      images = lib.optionalAttrs (isLinux && builtins.match ".*@.*" plan.image.reference == null) { inherit image; };

      # A persona has the packages of its shell. Its wrapper starts an agent, and with --exec a command in the agent's place.
      agents = lib.mapAttrs' (
        name: persona: lib.nameValuePair "persona-${name}" (plan.shells.${persona.shell} // { inherit (persona) fenced; isPersona = true; })
      ) plan.personas;
      wrappers = lib.optionalAttrs isLinux (lib.mapAttrs wrapper (plan.shells // agents));

      # Only the rc file that `nix develop` writes starts the fence: where the variables alone are wanted (`nix
      # print-dev-env`, and direnv by it) no shell is started, which direnv's users are told at each load. The rc file
      # ends in `exec COMMAND` (or, with --phase, in runHook), or is an interactive shell's; bash prefers a function to
      # a builtin, except in posix mode. What Nix leaves in the temporary directory is removed, as its own clean-up is
      # not reached.
      inRcFile = body: underDirenv: ''
        _wavegen_rc=''${BASH_SOURCE[0]-}
        case $_wavegen_rc in
        */nix-shell.??????)
        ${body}
        ;;
        *)
        unset _wavegen_rc
        if [ -n "''${DIRENV_IN_ENVRC-}" ]; then
        ${underDirenv}
        fi
        ;;
        esac
      '';
      loudly = name: reason: "printf '\\033[1;31mwavegen: %s: NOT SANDBOXED: %s\\033[0m\\n' ${lib.escapeShellArgs [ name reason ]} >&2";

      unfenced = "no fence is asked for";

      hook =
        name: shell:
        inRcFile ''
          set +o posix
          _wavegen_tidy() {
            ${pkgs.coreutils}/bin/rm -f -- "$_wavegen_rc"
            ${pkgs.coreutils}/bin/rmdir -- "''${NIX_BUILD_TOP-}" "''${_wavegen_rc%/*}/nix-develop-$$-0" 2>/dev/null || :
          }
          case $- in
            *i*)
              _wavegen_tidy
              builtin exec ${wrapper name shell}/bin/${name}
              builtin exit 125
              ;;
            *)
              exec() {
                _wavegen_tidy
                builtin exec ${wrapper name shell}/bin/${name} ${if shell.isPersona or false then "--exec" else "--"} "$@"
                builtin exit 125
              }
              runHook() {
                _wavegen_tidy
                printf 'wavegen: error: phases are not run inside the fence (use nix develop --command)\n' >&2
                builtin exit 125
              }
              ;;
          esac
        '' (loudly name (if shell.fenced then "direnv copies variables and starts no fence; nix develop does" else unfenced));

      warning =
        name: shell:
        let
          reason = if shell.fenced then "bubblewrap needs Linux; paths, processes and the network are not fenced" else unfenced;
          said = ''
            ${loudly name reason}
            ${lib.optionalString (missing shell != [ ]) "printf 'wavegen: not on this system: %s\\n' ${lib.escapeShellArgs (missing shell)} >&2"}
          '';
        in
        inRcFile said said;
    in
    {
      devShells = lib.mapAttrs (
        name: shell:
        pkgs.mkShellNoCC {
          inherit name;
          packages = here shell;
          shellHook = if isLinux then hook name shell else warning name shell;
        }
      ) (plan.shells // agents);

      # A shell's name is the shell's, also where the project or the image is called the same.
      packages =
        images
        // lib.optionalAttrs (plan.package != null) { ${packageName} = pkgs.callPackage (./.. + "/${plan.package}") { }; }
        // wrappers;

      apps = lib.mapAttrs (name: package: {
        type = "app";
        program = "${package}/bin/${name}";
        meta.description = "A command in the shell ${name} of ${plan.name}";
      }) wrappers;
    }
  );
in
{
  devShells = lib.mapAttrs (_: outputs: outputs.devShells) perSystem;
  packages = lib.mapAttrs (_: outputs: outputs.packages) perSystem;
  apps = lib.mapAttrs (_: outputs: outputs.apps) perSystem;
}
