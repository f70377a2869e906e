# bastle as a Nix package, without flakes: nix-build packaging/nixos
# Builds what `cargo xtask dist` builds, but linked as Nix links.
{ pkgs ? import <nixpkgs> { } }:

pkgs.rustPlatform.buildRustPackage {
  pname = "bastle";
  version = "0.1.0";

  src = pkgs.lib.cleanSource ../..;
  cargoLock.lockFile = ../../Cargo.lock;
  cargoBuildFlags = [ "--package" "bastle" ];
  buildType = "dist";

  nativeBuildInputs = [ pkgs.cmake pkgs.installShellFiles ];

  # The tests make namespaces, which the builder's own sandbox refuses.
  doCheck = false;

  postInstall = ''
    $out/bin/bastle man --dir man
    installManPage man/*.1
    for shell in bash zsh fish; do
      $out/bin/bastle completions $shell > bastle.$shell
    done
    installShellCompletion bastle.{bash,zsh,fish}
  '';

  meta = {
    description = "Run AI coding agents inside a kernel-enforced fence";
    license = with pkgs.lib.licenses; [ asl20 mit ];
    mainProgram = "bastle";
    platforms = [ "x86_64-linux" "aarch64-linux" ];
  };
}
