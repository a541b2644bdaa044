# `import nixpkgs { system; config; overlays; }`: packages that hand over to the programs of the host.
# Whatever is built is built by the host's bash without a build sandbox, see nix_env.py.
{
  system,
  config ? { },
  overlays ? [ ],
}:
let
  lib = import ./lib.nix;

  hostPlatform = {
    inherit system;
    isLinux = lib.elem system lib.platforms.linux;
    isDarwin = lib.elem system lib.platforms.darwin;
    isx86_64 = lib.hasPrefix "x86_64-" system;
    isAarch64 = lib.hasPrefix "aarch64-" system;
  };

  # As in nixpkgs a refused package stays readable (name, meta) and only throws where it is used:
  # a flake that filters before use must pass, one that does not must fail, in words users know.
  guard =
    package: value:
    let
      license = package.meta.license or lib.licenses.mit;
      allowed =
        config.allowUnfree or false || (config.allowUnfreePredicate or (_: false)) package;
      refuse = why: throw "Package ‘${package.name}’ in the stub nixpkgs ${why}";
    in
    if !(license.free or true) && !allowed then
      refuse "has an unfree license (‘${license.shortName}’), refusing to evaluate."
    else if !(lib.meta.availableOn hostPlatform package) then
      refuse "is not available on the requested hostPlatform ${system}."
    else
      value;

  # The one way to make a package: `script` is bash that makes $out.
  mkPackage =
    {
      pname ? lib.getName name,
      version ? "",
      name ? if version == "" then pname else "${pname}-${version}",
      meta ? { },
      passthru ? { },
      env ? { },
      script,
    }:
    let
      package = {
        inherit
          pname
          version
          name
          meta
          ;
      };
      drv = derivation (
        { PATH = "/usr/bin:/bin"; }
        // env
        // {
          inherit name system;
          # `nix develop` takes no builder but one called bash, and writes nothing without $outputs.
          builder = "/bin/bash";
          outputs = [ "out" ];
          args = [
            "-euo"
            "pipefail"
            "-c"
            # bash execs a last external command, which closes stdout before it ends: nix takes that for
            # the end of the build and kills it. With a builtin at the end bash itself ends the build.
            ''
              ${script}
              :
            ''
          ];
        }
      );
      guarded = guard package;
      # `drv` has several ways to its store path: each has to lead through the guard.
      self =
        drv
        // passthru
        // package
        // {
          inherit passthru;
          drvPath = guarded drv.drvPath;
          outPath = guarded drv.outPath;
          out = self;
          all = [ self ];
        };
    in
    self;

  # Looks for the program when it is run, not when it is built: the store outlives the host's packages.
  handOver = program: ''
    #!/bin/sh
    for dir in /usr/local/bin /usr/bin /bin /usr/sbin /sbin; do
      [ -x "$dir/${program}" ] && exec "$dir/${program}" "$@"
    done
    echo "${program}: not on this host, called with: $*"
  '';

  printLine = line: ''
    #!/bin/sh
    echo ${lib.escapeShellArg line}
  '';

  # A package of executables, each with the text that `text` gives for its name.
  mkTool =
    {
      pname,
      version,
      programs ? [ pname ],
      text ? handOver,
      meta ? { },
      passthru ? { },
    }:
    mkPackage {
      inherit pname version passthru;
      meta = {
        mainProgram = builtins.head programs;
        license = lib.licenses.mit;
      }
      // meta;
      script = ''
        mkdir -p "$out/bin"
        ${lib.concatMapStringsSep "\n" (program: ''
          printf %s ${lib.escapeShellArg (text program)} >"$out/bin/${program}"
          chmod +x "$out/bin/${program}"
        '') programs}
      '';
    };

  # Symlinks to the host's own binaries, for what has to be a real binary: an interpreter in a `#!` line
  # (bash), or programs so many that a script for each is a waste (coreutils).
  mkLinks =
    {
      pname,
      version,
      programs,
      mainProgram ? builtins.head programs,
      meta ? { },
      passthru ? { },
    }:
    mkPackage {
      inherit pname version passthru;
      meta = {
        inherit mainProgram;
        license = lib.licenses.mit;
      }
      // meta;
      script = ''
        mkdir -p "$out/bin"
        for program in ${lib.escapeShellArgs programs}; do
          ln -s "/bin/$program" "$out/bin/$program"
        done
      '';
    };

  writeTextFile =
    {
      name,
      text,
      executable ? false,
      destination ? "",
      checkPhase ? "",
      meta ? { },
      passthru ? { },
    }:
    mkPackage {
      inherit name meta passthru;
      env = {
        inherit text;
        # One environment string holds 128 KiB, a text may be longer.
        passAsFile = [ "text" ];
      };
      script = ''
        target="$out"${lib.escapeShellArg destination}
        mkdir -p "''${target%/*}"
        cp "$textPath" "$target"
        ${lib.optionalString executable ''chmod +x "$target"''}
        ${checkPhase}
      '';
    };

  mkShell =
    {
      name ? "nix-shell",
      packages ? [ ],
      shellHook ? "",
      env ? { },
      meta ? { },
      passthru ? { },
      ...
    }@attrs:
    mkPackage {
      inherit name meta passthru;
      env =
        removeAttrs attrs [
          "name"
          "packages"
          "env"
          "meta"
          "passthru"
        ]
        // env
        // {
          inherit shellHook;
          # What stdenv's setup would leave: the packages, a few basic tools, and the bash of the build.
          PATH = lib.makeBinPath (
            packages
            ++ [
              self.coreutils
              self.gnugrep
              self.gnused
              self.bash
            ]
          );
          SHELL = lib.getExe self.bash;
        };
      script = ''export >"$out"'';
    };

  buildPythonApplication =
    {
      pname,
      version,
      src,
      pyproject,
      build-system ? [ ],
      dependencies ? [ ],
      makeWrapperArgs ? [ ],
      pythonImportsCheck ? [ ],
      meta ? { },
      passthru ? { },
    }:
    assert pyproject;
    # Forces the dependencies (a name that does not exist has to fail) but runs the source as it is.
    mkPackage {
      inherit
        pname
        version
        meta
        passthru
        ;
      env = {
        inherit makeWrapperArgs pythonImportsCheck;
        dependencies = build-system ++ dependencies;
      };
      script = ''
        mkdir -p "$out/bin"
        printf '#!/bin/sh\nPYTHONPATH=%s exec /usr/bin/python3 -B -m %s "$@"\n' ${src} ${pname} >"$out/bin/${pname}"
        chmod +x "$out/bin/${pname}"
      '';
    };

  callPackageWith =
    scope: package: overrides:
    let
      f = if builtins.isFunction package then package else import package;
    in
    f (builtins.intersectAttrs (builtins.functionArgs f) scope // overrides);

  linuxOnly.platforms = lib.platforms.linux;

  packages = {
    inherit
      lib
      config
      writeTextFile
      mkShell
      ;
    # The stub has no C compiler to leave out.
    mkShellNoCC = mkShell;
    stdenv = { inherit hostPlatform; };
    callPackage = callPackageWith self;
    runCommandLocal = self.runCommand;

    runCommand =
      name: env: script:
      mkPackage {
        inherit name script;
        env = removeAttrs env [
          "meta"
          "passthru"
        ]
        // {
          PATH = lib.makeBinPath (env.nativeBuildInputs or [ ]) + ":/usr/bin:/bin";
        };
        meta = env.meta or { };
        passthru = env.passthru or { };
      };

    writeShellScriptBin =
      name: text:
      writeTextFile {
        inherit name;
        text = "#!${lib.getExe self.bash}\n${text}\n";
        executable = true;
        destination = "/bin/${name}";
        checkPhase = ''bash -n "$target"'';
        meta.mainProgram = name;
      };

    symlinkJoin =
      {
        name,
        paths,
        postBuild ? "",
        meta ? { },
        passthru ? { },
      }:
      mkPackage {
        inherit name meta passthru;
        env = { inherit paths; };
        # A tree of directories with links to files; the first path that has a file gives it.
        script = ''
          mkdir -p "$out"
          for path in $paths; do
            while IFS= read -r file; do
              mkdir -p "$out/''${file%/*}"
              [ -e "$out/$file" ] || ln -s "$path/$file" "$out/$file"
            done < <(cd "$path" && find . ! -type d)
          done
          ${postBuild}
        '';
      };

    # What `docker load` takes, as one layer: the links of all packages, and the store paths that they lead to.
    dockerTools = {
      buildLayeredImage =
        {
          name,
          tag,
          contents,
          config,
        }:
        mkPackage {
          name = "${builtins.replaceStrings [ "/" ":" ] [ "-" "-" ] name}.tar.gz";
          # As the real one says which image this is.
          passthru = {
            imageName = name;
            imageTag = tag;
          };
          env = {
            inherit contents;
            PATH = "/usr/bin:/bin:/usr/sbin:/sbin";
            reference = "${name}:${tag}";
            config = builtins.toJSON {
              architecture = if hostPlatform.isx86_64 then "amd64" else "arm64";
              os = "linux";
              inherit config;
            };
            passAsFile = [ "config" ];
          };
          script = ''
            mkdir -p root image
            for package in $contents; do
              mkdir -p "root''${package%/*}"
              cp -R "$package" "root$package"
              chmod -R u+w "root$package"
              while IFS= read -r file; do
                mkdir -p "root/''${file%/*}"
                [ -e "root/$file" ] || [ -L "root/$file" ] || ln -s "$package/$file" "root/$file"
              done < <(cd "$package" && find * ! -type d)
            done
            tar -C root --sort=name --owner=0 --group=0 --mtime=@1 -cf image/layer.tar .
            layer=$(sha256sum image/layer.tar)
            printf '%s,"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' "$(sed 's/}$//' "$configPath")" "''${layer%% *}" >image/config.json
            printf '[{"Config":"config.json","RepoTags":["%s"],"Layers":["layer.tar"]}]' "$reference" >image/manifest.json
            tar -C image -czf "$out" config.json layer.tar manifest.json
          '';
        };
      usrBinEnv = mkPackage {
        name = "usr-bin-env";
        script = ''
          mkdir -p "$out/usr/bin"
          ln -s ${self.coreutils}/bin/env "$out/usr/bin/env"
        '';
      };
      caCertificates = mkPackage {
        name = "ca-certificates";
        script = ''
          mkdir -p "$out/etc/ssl/certs"
          : >"$out/etc/ssl/certs/ca-certificates.crt"
        '';
      };
    };

    bash = mkLinks {
      pname = "bash";
      version = "5.2";
      programs = [ "bash" ];
    };
    bashInteractive = mkLinks {
      pname = "bash-interactive";
      version = "5.2";
      programs = [ "bash" ];
    };
    coreutils = mkLinks {
      pname = "coreutils";
      version = "9.1";
      mainProgram = "coreutils";
      programs = lib.splitString " " "basename cat chmod chown cp cut date dd df dirname du echo env expr false head id install ln ls mkdir mkfifo mktemp mv nproc od paste printenv printf pwd readlink realpath rm rmdir seq sha256sum sleep sort split stat stty sync tail tee test timeout touch tr true tty uname uniq wc whoami yes";
    };

    gnugrep = mkTool {
      pname = "gnugrep";
      version = "3.8";
      programs = [
        "grep"
        "egrep"
        "fgrep"
      ];
    };
    gnused = mkTool {
      pname = "gnused";
      version = "4.9";
      programs = [ "sed" ];
    };
    shellcheck = mkTool {
      pname = "shellcheck";
      version = "0.9.0";
    };
    ruff = mkTool {
      pname = "ruff";
      version = "0.8";
    };
    uv = mkTool {
      pname = "uv";
      version = "0.5";
    };
    gnumake = mkTool {
      pname = "gnumake";
      version = "4.3";
      programs = [ "make" ];
    };
    git = mkTool {
      pname = "git";
      version = "2.39";
    };
    curl = mkTool {
      pname = "curl";
      version = "8.0";
    };
    jq = mkTool {
      pname = "jq";
      version = "1.6";
    };
    go = mkTool {
      pname = "go";
      version = "1.24";
      programs = [
        "go"
        "gofmt"
      ];
    };
    gh = mkTool {
      pname = "gh";
      version = "2.0";
    };
    nodejs = mkTool {
      pname = "nodejs";
      version = "20.0";
      programs = [
        "node"
        "npm"
        "npx"
      ];
    };
    python3 = mkTool {
      pname = "python3";
      version = "3.11";
      programs = [ "python3" ];
      passthru.pkgs = self.python3Packages;
    };
    bubblewrap = mkTool {
      pname = "bubblewrap";
      version = "0.8.0";
      programs = [ "bwrap" ];
      meta = linuxOnly;
    };
    strace = mkTool {
      pname = "strace";
      version = "6.1";
      meta = linuxOnly;
    };
    hello = mkTool {
      pname = "hello";
      version = "2.12";
      text = _: printLine "Hello from the stub nixpkgs";
    };
    claude-code = mkTool {
      pname = "claude-code";
      version = "2.0";
      programs = [ "claude" ];
      text = _: printLine "claude from the stub nixpkgs";
      meta.license = lib.licenses.unfree;
    };

    python3Packages = {
      inherit buildPythonApplication;
    }
    // lib.genAttrs [ "hatchling" "click" "jinja2" "pyyaml" ] (
      pname:
      mkPackage {
        inherit pname;
        version = "1.0";
        script = ''mkdir "$out"'';
      }
    );
  };

  self = builtins.foldl' (previous: overlay: previous // overlay self previous) packages overlays;
in
self
