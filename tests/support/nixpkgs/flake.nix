# A stand-in for nixpkgs, so that the tests can run the real nix on a rendered flake without a network.
# Only the names a rendered flake may use are here: leaning on one more fails a test first.
{
  description = "Stub nixpkgs for the tests";

  outputs =
    { self }:
    let
      lib = import ./lib.nix;
      systems = [
        "x86_64-linux"
        "aarch64-linux"
        "x86_64-darwin"
        "aarch64-darwin"
      ];
    in
    {
      inherit lib;
      legacyPackages = lib.genAttrs systems (system: import ./. { inherit system; });
    };
}
