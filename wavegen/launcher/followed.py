"""What tools on the host run or follow in a project, besides git: one table for the mounts that protect it and for the audit that names what is new.

A pattern is matched without regard to case, as some file systems do. `name` is a file anywhere; one `*` stands for any text; `a/b` is b in
a directory a; `a/**` is everything below a directory a; a leading `/` binds it to the root of the project. The first row that fits is taken.

Protected: read-only in a shell where it exists at the project's root, because a version control system, an editor or an agent runs it by
itself. Named: what somebody starts by hand, and what is written in everyday work, is only named by the audit.
Sources: hg's localrepo.py (loadhgrc), jj's secure_config.rs, Sapling's identity.rs, and each tool's own documentation of its settings.
"""

from __future__ import annotations

# (kind, severity, protected, named, what it is, who runs it)
_ROWS = (
    ("fence", "critical", "",
     "/wave.yaml /wave.sandbox.yaml /flake.nix /flake.lock /.wavegen/**",
     "a file of the fence's own", "wavegen and nix make the fence of it"),
    ("git", "medium", "",
     ".gitmodules",
     "submodules", "git fetches and checks out what it names"),
    ("git", "medium", "",
     ".gitattributes",
     "attributes of files", "git starts the drivers that it names, where the settings know them"),
    ("git", "medium", "",
     ".gitconfig* gitconfig *.gitconfig",
     "settings of git", "git obeys it, where other settings include it"),
    ("git", "medium", "",
     ".lfsconfig",
     "settings of git-lfs", "git-lfs sends and fetches files where it says"),
    ("vcs", "critical", ".hg/hgrc .hg/hgrc-not-shared",
     "",
     "settings of Mercurial", "hg starts the hooks and extensions that it names, at a status even"),
    ("vcs", "high", ".hg/requires .hg/sharedpath",
     ".hgsub",
     "where Mercurial finds settings, history and subrepositories", "hg takes settings and hooks from there"),
    ("vcs", "critical", ".jj/repo/config.toml .jj/workspace-config.toml",
     "",
     "settings of Jujutsu", "jj starts the programs that it names"),
    ("vcs", "high", ".jj/repo/config-id .jj/workspace-config-id .jj/repo/store/git_target .jj/repo/store/type",
     ".jj/repo",
     "where Jujutsu finds settings and history", "jj takes settings from there, and git its hooks"),
    ("vcs", "critical", ".sl/config",
     "",
     "settings of Sapling", "sl starts the hooks and extensions that it names"),
    ("vcs", "high", ".sl/requires .sl/sharedpath",
     "",
     "where Sapling finds settings and history", "sl takes settings and hooks from there"),
    ("vcs", "critical", "_darcs/prefs/defaults _darcs/prefs/prefs .pijul/config",
     "",
     "settings of darcs or Pijul", "darcs and pijul start the hooks and tests that it names"),
    ("direnv", "high", ".envrc .envrc.local .direnv/**",
     ".envrc.*",
     "a direnv script", "direnv runs it when you enter the directory, once it is allowed"),
    ("direnv", "low", "",
     ".env .env.*",
     "variables", "direnv, docker compose and many programs load it into their environment"),
    ("versions", "high", ".mise.toml mise.toml .rtx.toml .mise/** .config/mise/** .config/mise.toml .miserc.toml .mise.local.toml mise.local.toml",
     ".mise.*.toml mise.*.toml mise/config.toml",
     "settings of mise", "mise sets variables and runs hooks and tasks from it when you enter the directory"),
    ("versions", "low", ".tool-versions .nvmrc",
     ".node-version .ruby-version .python-version .java-version .asdfrc .sdkmanrc .terraform-version rust-toolchain rust-toolchain.toml",
     "versions of tools", "version managers choose, and may install, what it names"),
    ("nix", "high", "",
     "shell.nix default.nix flake.nix devenv.nix devbox.json devenv.yaml process-compose.yaml .flox/env/manifest.toml pixi.toml",
     "a development environment", "nix, devenv or devbox evaluate it and run its shell hook"),
    ("nix", "medium", "",
     "*.nix",
     "a Nix expression", "nix evaluates it where another file names it"),
    ("nix", "low", "",
     "flake.lock devbox.lock devenv.lock",
     "the inputs of a Nix expression", "nix fetches what it names"),
    ("editor", "high", "",
     ".vscode/tasks.json .vscode/settings.json .vscode/launch.json .vscode/mcp.json .vscode/extensions.json *.code-workspace",
     "settings of VS Code", "the editor starts its tasks and the programs it names when it opens the folder"),
    ("editor", "high", ".devcontainer/** .devcontainer.json",
     ".gitpod.yml .gitpod.dockerfile .replit .idx/**",
     "a development container", "the editor builds it and runs its commands, some on the host"),
    ("editor", "high", ".idea/** .fleet/** .zed/** .nova/** hie.yaml",
     "*.iml *.ipr .run/** .bsp/**",
     "settings of an editor", "the editor starts tasks and programs that it names"),
    ("editor", "high", ".nvim.lua .exrc .dir-locals.el .dir-locals-2.el .helix/**",
     ".nvimrc .vimrc .gvimrc .lvimrc .local.vimrc .vim/** .kakrc .emacs.d/** .vimspector.json .nvim/** session.vim",
     "an editor script", "the editor runs it when it opens a file there"),
    ("editor", "medium", ".vscode/**",
     "*.sublime-project *.sublime-workspace .vs/** .projectile .ycm_extra_conf.py .clangd .ccls",
     "settings of an editor", "the editor starts build systems and servers that it names"),
    ("agent", "high", (".claude/** .mcp.json .codex/** .cursor/** .gemini/** .amazonq/** .opencode/** opencode.json opencode.jsonc .windsurf/** .roo/** .kilocode/** "
        ".continue/** .aider.conf.yml .crush.json crush.json .github/hooks/** .github/copilot/** .qwen/** .kiro/hooks/** .kiro/settings/** "
        ".kiro/agents/** .pi/extensions/** .pi/settings.json .factory/** .grok/** .augment/** .junie/** .trae/** .claude-plugin/** .clinerules/hooks/** "
        ".amp/** .codebuddy/** .qoder/** .devin/**"),
     "mcp.json .agents/hooks/**",
     "settings of an agent", "an agent outside of the fence starts its hooks and servers, and follows it"),
    ("agent", "medium", "",
     ("claude.md claude.local.md agents.md agents.override.md gemini.md .cursorrules .windsurfrules .clinerules .clinerules/** .goosehints "
     ".github/copilot-instructions.md .github/instructions/** .github/prompts/** .github/agents/** .rules .agents/** .kiro/** .pi/** qwen.md"),
     "instructions for agents", "an agent outside of the fence follows it"),
    ("ci", "high", "",
     (".github/workflows/** .github/actions/** action.yml action.yaml .gitlab-ci.yml .gitlab-ci.yaml .gitlab/** .ci/** jenkinsfile jenkinsfile.* "
     "*.jenkinsfile .circleci/** azure-pipelines* .azure-pipelines/** .travis.yml .drone.yml .woodpecker* .woodpecker/** bitbucket-pipelines.yml "
     ".buildkite/** buildkite.yml .forgejo/workflows/** .gitea/workflows/** .forgejo/actions/** .gitea/actions/** appveyor.yml .appveyor.yml "
     ".cirrus.yml .cirrus.star .builds/** .build.yml cloudbuild.yaml garnix.yaml .semaphore/** .teamcity/**"),
     "a pipeline", "the build server runs it, with its secrets, once it is pushed"),
    ("hooks", "high", ".husky/** .githooks/**",
     (".pre-commit-config.yaml .pre-commit-hooks.yaml lefthook* .lefthook* .lefthook/** .git-hooks/** .hooks/** .overcommit.yml .lintstagedrc* "
     "lint-staged.config.* .huskyrc* .simple-git-hooks.* .captainhook.json"),
     "git hooks in the project", "git starts what it names at the next commit, where they are installed"),
    ("ci", "low", "",
     "renovate.json renovate.json5 .renovaterc* dependabot.yml .github/**",
     "settings of a forge", "the forge's robots follow it"),
    ("package", "medium", "",
     "package.json",
     "a package's scripts and dependencies", "npm, yarn, pnpm and bun run its scripts"),
    ("package", "high", "",
     (".npmrc .yarnrc .yarnrc.yml .pnp.cjs .pnp.js .pnp.loader.mjs .yarn/releases/** .yarn/plugins/** .pnpmfile.cjs pnpmfile.cjs .pnpmfile.mjs "
     "bunfig.toml .node_repl* .noderc"),
     "settings of a package manager", "npm, yarn, pnpm and bun start the programs and use the registries that it names"),
    ("package", "low", "",
     ("package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml bun.lock bun.lockb cargo.lock poetry.lock uv.lock pdm.lock pipfile.lock "
     "gemfile.lock composer.lock go.sum requirements* constraints*"),
     "chosen versions", "package managers fetch from where it says"),
    ("package", "medium", "",
     ("deno.json deno.jsonc pnpm-workspace.yaml lerna.json nx.json turbo.json .babelrc* *.config.js *.config.mjs *.config.cjs *.config.ts *.config.mts "
     "*.config.cts .eslintrc* .prettierrc* .stylelintrc* .mocharc* gulpfile.* gruntfile.*"),
     "settings of JavaScript tools, which are programs", "node runs it with the tool, and editors start these tools by themselves"),
    ("build", "medium", "",
     ("makefile gnumakefile bsdmakefile makefile.* *.mk *.mak justfile .justfile *.just taskfile.yml taskfile.yaml taskfile.dist.* taskfile.*.yml "
     "rakefile *.rake magefile.go magefiles/** sconstruct sconscript wscript dodo.py tasks.py fabfile.py pavement.py build.ninja procfile* earthfile "
     "tiltfile bakefile* xmake.lua premake5.lua build.zig build.zig.zon build.sh maskfile.md meson.build meson.options meson_options.txt cmakelists.txt "
     "*.cmake cmakepresets.json cmakeuserpresets.json configure configure.ac configure.in autogen.sh bootstrap.sh makefile.am makefile.in vagrantfile "
     "dockerfile dockerfile.* *.dockerfile containerfile docker-compose* compose*.yml compose*.yaml docker-bake.* skaffold.yaml guardfile snakefile "
     "conanfile.py conanfile.txt podfile cartfile brewfile capfile dangerfile puppetfile berksfile thorfile *.thor jakefile* jamfile jamroot "
     "nextflow.config dagger.json vcpkg.json spack.yaml fastlane/**"),
     "a recipe", "make, just, cmake, docker and their like run it"),
    ("build", "medium", "",
     ("workspace workspace.bazel module.bazel build build.bazel *.bzl .bazelrc user.bazelrc .bazelversion tools/bazel .buckconfig buck pants.toml "
     "build.gradle* settings.gradle* init.gradle* gradle.properties gradlew gradlew.bat gradle/** buildsrc/** *.gradle *.gradle.kts mvnw mvnw.cmd "
     ".mvn/** pom.xml build.xml build.sbt project/build.properties project/plugins.sbt build.sc build.mill *.csproj *.vbproj *.fsproj *.sln *.props "
     "*.targets nuget.config *.cabal cabal.project* setup.hs stack.yaml mix.exs rebar.config* dune dune-project package.swift pubspec.yaml"),
     "a recipe of a build tool", "gradle, maven, bazel, dotnet and their like run it, editors too when they open the project"),
    ("build", "high", "",
     ".cargo/** build.rs",
     "what cargo runs or is told", "cargo runs it when it builds, also for an editor's language server"),
    ("build", "medium", "",
     "cargo.toml",
     "a crate", "cargo fetches and builds what it names"),
    ("build", "low", "",
     "go.mod go.work gemfile *.gemspec composer.json pipfile environment.yml mod.ts",
     "dependencies", "package managers fetch what it names"),
    ("python", "medium", "",
     ("setup.py setup.cfg pyproject.toml conftest.py tox.ini noxfile.py pytest.ini tox.toml pyvenv.cfg uv.toml pdm.toml poetry.toml .pdm.toml hatch.toml "
     "hatch_build.py manage.py .coveragerc .pylintrc pylintrc mypy.ini .mypy.ini pip.conf .pypirc ipython_config.py wsgi.py"),
     "what Python tools run or are told", "pip, pytest, tox, linters and editors run it or load plug-ins that it names"),
    ("python", "high", "",
     "sitecustomize.py usercustomize.py *.pth gunicorn.conf.py jupyter_*_config.py jupyter_*_config.json jupyter_config.py jupyter_config.json",
     "what every Python start runs", "python runs it at each start, where it is on its path"),
    ("shell", "high", "",
     (".gdbinit .lldbinit .gdbearlyinit .pryrc .irbrc .rdebugrc .byebugrc .rprofile .renviron .psqlrc .sqliterc .inputrc .screenrc .tmux.conf "
     ".tmuxinator.yml .tmuxp.yaml .curlrc .wgetrc .netrc .bundle/** .rspec .rubocop.yml .iex.exs .ghci .ocamlinit .utoprc .perltidyrc .perlcriticrc "
     ".ackrc .agignore.sh .mailcap .lessfilter .bashrc .bash_profile .bash_login .profile .zshrc .zshenv .zprofile .zlogin .autoenv* .in .out "
     ".autoenv.zsh .ondir* .projectrc .dirrc desktop.ini .directory *.desktop autorun.inf .pdbrc .pdbrc.py"),
     "settings of a program that reads them where it is started", "gdb, irb, psql, a shell and their like run it or obey it"),
    ("shell", "medium", "",
     (".ssh/** .gnupg/** .docker/** .aws/** .kube/** .config/** ansible.cfg .terraformrc *.tf terragrunt.hcl .terraform/** .watchmanconfig watchman.json "
     "playbook.yml .kitchen.yml .tern-project ctags.d/** .ctags.d/** .ctags"),
     "settings of a program", "programs that take the project for their home, or are started in it, obey it"),
)  # fmt: skip

ROWS = tuple((kind, severity, tuple(protected.split()), tuple(named.split()), what, runs) for kind, severity, protected, named, what, runs in _ROWS)

KEPT_IN_PLACE = (".hg", ".jj", ".sl", "_darcs", ".pijul")
"""Directories of version control systems: another one in their place would have other hooks."""

GIT_STORES = (".jj/repo/store/git", ".sl/store/git")
"""Git directories of other systems, whose settings and hooks git follows."""
