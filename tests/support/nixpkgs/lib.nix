# The functions of nixpkgs' lib that a rendered flake may use. Own code, same results.
let
  inherit (builtins)
    attrNames
    concatMap
    concatStringsSep
    elem
    filter
    foldl'
    head
    isAttrs
    isString
    listToAttrs
    map
    match
    parseDrvName
    partition
    replaceStrings
    split
    stringLength
    substring
    tail
    ;
in
rec {
  inherit
    attrNames
    concatMap
    concatStringsSep
    elem
    filter
    partition
    ;
  inherit (builtins) mapAttrs;

  # Attribute sets
  nameValuePair = name: value: { inherit name value; };
  genAttrs = names: f: listToAttrs (map (name: nameValuePair name (f name)) names);
  mapAttrs' = f: set: listToAttrs (map (name: f name set.${name}) (attrNames set));
  filterAttrs =
    keep: set: removeAttrs set (filter (name: !keep name set.${name}) (attrNames set));
  attrByPath =
    path: default: set:
    if path == [ ] then
      set
    else if isAttrs set && set ? ${head path} then
      attrByPath (tail path) default set.${head path}
    else
      default;
  hasAttrByPath =
    path: set:
    path == [ ]
    || (isAttrs set && set ? ${head path} && hasAttrByPath (tail path) set.${head path});

  # Lists
  optional = condition: item: if condition then [ item ] else [ ];
  optionals = condition: items: if condition then items else [ ];
  optionalAttrs = condition: set: if condition then set else { };
  intersectLists = wanted: filter (item: elem item wanted);
  subtractLists = gone: filter (item: !elem item gone);
  concatStrings = concatStringsSep "";
  stringToCharacters = text: map (i: substring i 1 text) (builtins.genList (i: i) (stringLength text));
  unique = foldl' (seen: item: if elem item seen then seen else seen ++ [ item ]) [ ];

  # Strings
  optionalString = condition: text: if condition then text else "";
  concatMapStringsSep =
    separator: f: items:
    concatStringsSep separator (map f items);
  hasPrefix = prefix: text: substring 0 (stringLength prefix) text == prefix;
  splitString =
    separator: text:
    # builtins.split takes a regular expression: make every special character literal.
    let
      special = filter (part: part != "") (concatMap (part: if isString part then [ ] else part) (
        split "(.)" "\\^$.|?*+()[{"
      ));
      literal = replaceStrings special (map (char: "\\${char}") special) separator;
    in
    filter isString (split literal text);
  escapeShellArg =
    value:
    let
      text = toString value;
    in
    if match "[[:alnum:],._+:@%/-]+" text == null then
      "'${replaceStrings [ "'" ] [ "'\\''" ] text}'"
    else
      text;
  escapeShellArgs = concatMapStringsSep " " escapeShellArg;

  # Packages
  getName =
    package:
    if isString package then
      (parseDrvName package).name
    else
      package.pname or (parseDrvName package.name).name;
  makeBinPath = packages: concatMapStringsSep ":" (package: "${package}/bin") packages;
  getExe' = package: program: "${package}/bin/${program}";
  getExe =
    package:
    # nixpkgs only warns and guesses; here a guess would hide a mistake.
    getExe' package (
      package.meta.mainProgram or (throw "getExe: ${getName package} has no meta.mainProgram")
    );
  meta = {
    inherit getExe getExe';
    availableOn =
      platform: package:
      !(package ? meta.platforms) || elem platform.system package.meta.platforms;
  };

  licenses = {
    mit = {
      spdxId = "MIT";
      shortName = "mit";
      fullName = "MIT License";
      free = true;
    };
    unfree = {
      shortName = "unfree";
      fullName = "Unfree";
      free = false;
    };
  };
  # The systems that nixpkgs' own flake offers; those that a rendered flake does not name are left out here.
  systems.flakeExposed = platforms.linux ++ platforms.darwin ++ [ "riscv64-linux" ];
  platforms = {
    linux = [
      "x86_64-linux"
      "aarch64-linux"
    ];
    darwin = [
      "x86_64-darwin"
      "aarch64-darwin"
    ];
  };

  # A fileset is a list of paths here. As in nixpkgs each has to exist.
  fileset = {
    unions = map (
      path:
      if builtins.pathExists path then path else throw "lib.fileset: ${toString path} does not exist"
    );
    toSource =
      { root, fileset }:
      builtins.path {
        path = root;
        name = "source";
        filter =
          path: _:
          builtins.any (
            member:
            path == toString member
            || hasPrefix "${toString member}/" path
            || hasPrefix "${path}/" (toString member)
          ) fileset;
      };
  };

  # Version control and build leftovers stay out of the store.
  cleanSource =
    source:
    builtins.path {
      path = source;
      name = "source";
      filter =
        path: type:
        let
          name = baseNameOf path;
        in
        !(elem name [
          ".git"
          ".hg"
          ".svn"
        ])
        && match ".*(~|\\.o|\\.so)" name == null
        && !(type == "symlink" && match "result(-.*)?" name != null);
    };
}
