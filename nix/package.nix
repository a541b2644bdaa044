# wavegen as a package: pkgs.callPackage ./nix/package.nix { }
{
  lib,
  stdenv,
  python3Packages,
  bubblewrap,
}:
python3Packages.buildPythonApplication {
  pname = "wavegen";
  # The version stands in one place, where the Python build reads it too.
  version = builtins.head (
    builtins.match ".*VERSION = \"([^\"]+)\".*" (builtins.readFile ../wavegen/__init__.py)
  );
  pyproject = true;

  # What goes into the wheel, so that a change of a test or a document rebuilds nothing.
  src = lib.fileset.toSource {
    root = ../.;
    fileset = lib.fileset.unions [
      ../README.md
      ../hatch_build.py
      ../nix
      ../pyproject.toml
      ../templates
      ../wavegen
    ];
  };

  # click, as hatch_build.py writes the pages for man and the scripts for shells from the command line.
  build-system = [
    python3Packages.hatchling
    python3Packages.click
  ];
  dependencies = [
    python3Packages.click
    python3Packages.jinja2
    python3Packages.pyyaml
  ];

  # `wavegen run` starts bwrap; the distribution's own, which a kernel policy may know by its path, comes first.
  makeWrapperArgs = lib.optionals stdenv.hostPlatform.isLinux [
    "--suffix"
    "PATH"
    ":"
    (lib.makeBinPath [ bubblewrap ])
  ];
  pythonImportsCheck = [ "wavegen" ];

  meta = {
    description = "Render one manifest into every fence around a coding agent";
    license = lib.licenses.mit;
    mainProgram = "wavegen";
    platforms = lib.platforms.linux ++ lib.platforms.darwin;
  };
}
