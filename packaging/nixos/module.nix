# NixOS module: the daemon, the process that builds sandboxes for it, and egress proxies.
#
#   imports = [ ./path/to/bastle/packaging/nixos/module.nix ];
#   services.bastle.enable = true;
#
# The units are those of packaging/systemd; only the path of the program and the ceiling differ.
{ config, lib, pkgs, ... }:

let
  cfg = config.services.bastle;
  json = pkgs.formats.json { };
  # The shipped units, with the program where Nix has it.
  units = pkgs.runCommand "bastle-units" { } ''
    mkdir -p $out/lib/systemd/system
    for unit in ${../systemd}/*.service ${../systemd}/*.socket; do
      sed -e 's|/usr/bin/bastle|${cfg.package}/bin/bastle|g' \
          -e 's|/bin/kill|${pkgs.coreutils}/bin/kill|g' \
          "$unit" > "$out/lib/systemd/system/$(basename "$unit")"
    done
  '';
in
{
  options.services.bastle = {
    enable = lib.mkEnableOption "the bastle daemon and the process that builds its sandboxes";

    package = lib.mkOption {
      type = lib.types.package;
      default = import ./default.nix { inherit pkgs; };
      defaultText = lib.literalExpression "import ./default.nix { inherit pkgs; }";
      description = "The program.";
    };

    ceiling = lib.mkOption {
      type = json.type;
      default = builtins.fromJSON (builtins.readFile ../ceiling.json);
      defaultText = lib.literalExpression "builtins.fromJSON (builtins.readFile ../ceiling.json)";
      description = "Who may have sandboxes built, from which places, and how many: the content of ceiling.json.";
    };

    settings = lib.mkOption {
      type = json.type;
      default = { };
      description = "The content of serve.json. It is readable by everybody: name secrets by file.";
    };

    policy = lib.mkOption {
      type = json.type;
      default = { version = 1; };
      description = "The managed policy of this machine: the content of policy.json.";
    };

    members = lib.mkOption {
      type = lib.types.listOf lib.types.str;
      default = [ ];
      example = [ "alice" ];
      description = "Users that may connect to the sockets. What they may do is said by the ceiling and by tokens.";
    };

    egress = lib.mkOption {
      type = lib.types.attrsOf (lib.types.submodule {
        options = {
          listen = lib.mkOption {
            type = lib.types.str;
            example = "127.0.0.1:3128";
            description = "Where its HTTP proxy listens.";
          };
          policy = lib.mkOption {
            type = json.type;
            description = "What it lets through.";
          };
        };
      });
      default = { };
      description = "Egress proxies by themselves.";
    };
  };

  config = lib.mkIf cfg.enable {
    environment.systemPackages = [ cfg.package ];

    environment.etc = {
      "bastle/ceiling.json".source = json.generate "ceiling.json" cfg.ceiling;
      "bastle/serve.json".source = json.generate "serve.json" cfg.settings;
      "bastle/policy.json".source = json.generate "policy.json" cfg.policy;
    } // lib.concatMapAttrs
      (name: proxy: {
        "bastle/egress/${name}.json".source = json.generate "${name}.json" proxy.policy;
        "bastle/egress/${name}.env".text =
          "BASTLE_EGRESS_ARGS=--listen ${proxy.listen} --policy /etc/bastle/egress/${name}.json\n";
      })
      cfg.egress;

    users.users.bastle = {
      isSystemUser = true;
      group = "bastle";
      home = "/var/lib/bastle";
    };
    users.groups.bastle.members = cfg.members;
    users.users.bastle-egress = {
      isSystemUser = true;
      group = "bastle-egress";
      home = "/var/lib/bastle-egress";
    };
    users.groups.bastle-egress = { };

    systemd.packages = [ units ];
    systemd.tmpfiles.rules = [
      "d /run/bastle 0755 root root -"
      "d /run/bastle-proc 0700 root root -"
    ];
    systemd.sockets.bastle-spawner.wantedBy = [ "sockets.target" ];
    systemd.sockets.bastle.wantedBy = [ "sockets.target" ];
    systemd.services = {
      bastle.wantedBy = [ "multi-user.target" ];
      # A restart leaves runs alone; a stop and a start in between would only lengthen it.
      bastle.stopIfChanged = false;
      bastle-spawner.stopIfChanged = false;
    } // lib.mapAttrs'
      (name: _: lib.nameValuePair "bastle-egress@${name}" {
        wantedBy = [ "multi-user.target" ];
        overrideStrategy = "asDropin";
      })
      cfg.egress;
  };
}
