//! Names that must pass and names that must be held, most of the latter in no catalogue.
use super::*;
use crate::audit_delta::Change;
use crate::testing::{Folder, path};

/// Ordinary work in ordinary languages.
#[rustfmt::skip]
const ORDINARY: &[&str] = &[
    "src/main.rs", "src/lib.rs", "crates/core/src/lib.rs", "tests/parse.rs",
    "benches/fast.rs", "examples/hello.rs", "lib/foo.py", "app/views.py", "pkg/__init__.py",
    "tests/test_views.py", "src/app/models.pyi", "cmd/server/main.go", "internal/store/store.go",
    "tests/x_test.go", "pkg/api/types.go", "src/index.js", "src/index.ts", "src/App.tsx", "src/App.jsx",
    "src/components/Button.vue", "src/routes/page.svelte", "src/pages/index.astro", "lib/util.mjs",
    "lib/util.cjs", "src/types.d.ts", "src/styles/main.css", "src/styles/main.scss", "src/styles/site.less",
    "public/index.html", "templates/base.html", "templates/mail.j2", "app/models/user.rb", "lib/tool.rb",
    "spec/user_spec.rb", "app/views/home.html.erb", "src/Main.java", "src/test/java/com/x/MainTest.java",
    "src/main/kotlin/App.kt", "src/main/scala/App.scala", "src/core.clj", "src/core.cljs", "src/list.c",
    "src/list.h", "include/list.hpp", "src/list.cc", "src/list.cpp", "src/list.cxx", "src/kernel.cu",
    "src/view.m", "src/view.mm", "Sources/App/main.swift", "lib/main.dart", "lib/app.ex",
    "test/app_test.exs", "src/app.erl", "include/app.hrl", "src/Main.hs", "lib/parse.ml", "lib/parse.mli",
    "Program.cs", "src/Program.fs", "src/Form.vb", "src/game.lua", "lib/App.pm", "t/basic.t", "R/model.R",
    "src/model.jl", "src/prog.nim", "src/prog.zig", "rtl/top.v", "rtl/top.sv", "rtl/top.vhd", "src/app.d",
    "src/unit.pas", "src/solve.f90", "src/boot.s", "src/boot.asm", "shaders/a.vert", "shaders/a.frag",
    "shaders/a.wgsl", "proto/api.proto", "schema/api.graphql", "db/schema.sql",
    "db/migrations/001_init.sql", "contracts/Token.sol", "src/Main.elm", "src/Main.purs", "src/app.coffee",
    "src/web.php", "src/Controller/Home.php", "src/tool.tcl", "src/parser.y", "src/lexer.l",
    "grammar/Expr.g4", "README.md", "README", "LICENSE", "LICENSE.md", "COPYING", "CHANGELOG.md",
    "CONTRIBUTING.md", "AUTHORS", "NOTICE", "TODO.md", "docs/a.md", "docs/guide/start.md", "docs/api.rst",
    "docs/manual.adoc", "docs/notes.txt", "docs/paper.tex", "docs/refs.bib", "docs/tool.1",
    "assets/logo.png", "assets/logo.svg", "assets/photo.jpg", "assets/anim.gif", "assets/icon.ico",
    "assets/font.woff2", "assets/sound.mp3", "assets/clip.mp4", "docs/spec.pdf", "data/cities.csv",
    "data/cities.tsv", "data/rows.jsonl", "locales/en.json", "locales/de.po", "tests/fixtures/input.json",
    "tests/fixtures/input.yaml", "tests/fixtures/input.toml", "tests/fixtures/input.xml",
    "tests/data/expected.out", "tests/snapshots/a.snap", "notes.txt", "main.py", "app.py", "index.js",
    "main.go", "main.c", "hello.rs", "utils.ts", "style.css", "index.html", "schema.sql", "data.csv",
    "src/config.rs", "src/config/mod.rs", "src/settings.py", "src/setup.rs", "src/workspace.rs",
    "src/directory.rs", "src/inventory.py", "src/codegen.rs", "src/project/list.ts", "src/roles/admin.ts",
    "src/charts/Bar.tsx", "src/recipes/index.ts", "src/moon.rs", "src/parcel.rs", "src/bootstrap.ts",
    "src/fuse.rs", "src/claude.rs", "src/agents.md.rs", "docs/claude-notes.md", "src/makefile_parser.rs",
    "docs/docker-guide.md", "src/git.rs", "src/env.ts", "src/hooks/useThing.ts", "src/ci.py",
    "src/deploy.rs", "web/src/api/client.ts", "web/src/store/index.ts", "SECURITY.md", "src/\u{fc}ber.rs",
    "docs/\u{65e5}\u{672c}\u{8a9e}.md",
];

/// Invented tools, unknown configuration, unknown extensions: nobody wrote a rule for these.
#[rustfmt::skip]
const INVENTED: &[&str] = &[
    ".foo", ".foorc", ".foorc.json", ".unknown/tool.yml", ".zap", ".zaprc.js", ".newtool/config.toml",
    ".hidden/readme.md", "sub/.strange", "sub/.toolrc", ".x/y/z.md", ".agentx/instructions.md",
    ".fancy-ai/rules.md", ".mytool", ".superlint.toml", ".qqq.yml", ".conf", ".settings", ".tools", ".boot",
    ".start", ".init", ".onload", ".load", ".plugin", ".plugins/a.js", ".ext/a.lua", ".runner", ".exec",
    ".auto", ".autorun", ".hook", ".prehook", ".postinstall", ".preinstall", ".build", ".watch", ".serve",
    ".deployer", ".ship", ".release", ".publish", ".ops", ".infra", ".stack", ".cloud", ".edge",
    ".assistant", ".bot", ".copilotx", ".llmrc", ".modelrc", ".toolchain", ".nextgen", ".editor", ".ide",
    ".lsp", ".dbg", ".dap", ".tracing", ".perf", ".profilex", ".flags", ".args", ".opts", ".jvm", ".node",
    ".py", ".rb", ".go", "newtool.toml", "newtool.yaml", "newtool.yml", "newtool.json", "newtool.json5",
    "newtool.jsonc", "newtool.xml", "newtool.properties", "tasks.yaml", "pipeline.yml", "pipeline.yaml",
    "steps.yaml", "flow.yaml", "jobs.json", "hooks.json", "plugins.json", "runner.toml", "build.toml",
    "watch.toml", "serve.toml", "deploy.toml", "infra.yaml", "stack.yaml.tmplx", "ops.toml", "agent.yaml",
    "agents.yaml", "agent.json", "assistant.toml", "model.yaml", "prompts.yaml", "rules.toml", "rules.json",
    "settings.toml", "settings.json", "settings.yaml", "config.json", "conf.yaml", "options.json",
    "preload.conf", "tool.cfg", "tool.ini", "tool.conf", "app.ini", "server.conf", "nested/server.conf",
    "nested/tool.cfg", "nested/tool.ini", "newtool.config.js", "newtool.config.ts", "newtool.config.mjs",
    "newtool.config.json", "newtool.config.yaml", "sub/newtool.config.cjs", "sub/deep/newtool.config.ts",
    "newtool.conf.js", "newtool.rc.js", "sub/tool.rc.json", "newtoolrc.js", "newtoolrc.ts",
    "newtool-config.js", "newtool_config.py", "toolfile.js", "toolfile.py", "project-setup.js",
    "zapfile.ts", "Zapfile", "Newfile", "Buildfile", "Shipfile", "Deployfile", "Runnerfile", "Testfile",
    "Flowfile", "Lintfile", "Hookfile", "Agentfile", "Plugfile", "Loadfile", "Startfile", "Bootfile",
    "sub/Zapfile", "sub/Buildit", "sub/runme", "sub/doit", "sub/go", "sub/start", "sub/launch", "runme",
    "doit", "launch", "start", "install-it", "setup-it", "kick", "tool.xyz", "a.abc", "sub/b.qqq",
    "x.unknown", "y.plugin", "z.addon", "m.module", "n.ext", "o.hook", "p.task", "q.job", "r.flow",
    "s.pipeline", "t.stepz", "u.recipe", "v.bundlez", "w.pkgz", "x.shellx", "y.prog", "z.bat_", "a.msp",
    "b.gadget", "c.inx", "d.job2", "e.u3p", "f.vbscript", "g.widget", "h.ps2", "i.paf", "j.rgs", "k.sct",
    "l.shb", "m.shs", "n.ws", "o.xbap", "p.mst", "q.isu", "r.ins", "s.inz", "a.phar2", "b.pyw", "c.pyzw",
    "d.rbw", "e.lnk2", "f.applet", "g.osax", "h.qlgenerator", "i.prefpane", "j.saver", "k.kext", "l.vst",
    "m.component", "n.bundle2", "o.framework", "c.tool-versions2", "d.mcpx", "e.agentx", "f.prompt",
    "g.skill", "h.chatml", "i.rulesx", "a.safetensorsx", "b.model", "c.weights", "d.dump", "e.core",
    "f.coredump", "a.swp", "b.swo", "c.bak", "d.orig", "e.rej", "f.tmp", "g.temp", "h.lock", "i.pid",
    "j.sock", "k.db", "l.sqlite", "m.kdbx", "n.pem", "o.key", "p.crt", "q.p12", "r.pfx", "s.jks", "t.gpg",
    "u.asc2", "v.sig", "sub/.git-template", "sub/.vimspector", "sub/.terraformx", "docs/.hidden.md",
    "src/.secret.rs", "assets/.thing.png", ".GITHUB2/x", ".CLAUDEX", ".Foo\u{130}", "\u{ff0e}foorc.d",
    "CLAUDE~1.md", "GITHUB~1.yml",
];

fn judge(name: &str, content: &[u8]) -> Assessed {
    let stage = tempfile::tempdir().unwrap();
    let blobs = Folder(stage.path().to_owned());
    static RULES: std::sync::LazyLock<Rules> =
        std::sync::LazyLock::new(|| Rules::new(bastle_policy::host_executed::catalogue().unwrap()).unwrap());
    let change = Change {
        path: path(name),
        before: None,
        after: Some(blobs.put(content)),
    };
    assess(&RULES, &Tree::default(), &change, &blobs).unwrap()
}

#[test]
fn ordinary_source_text_data_and_media_pass() {
    assert!(ORDINARY.len() >= 150, "{}", ORDINARY.len());
    let held: Vec<_> = ORDINARY
        .iter()
        .map(|name| (name, judge(name, b"hello\n")))
        .filter(|(_, found)| found.tier() != Tier::Note)
        .map(|(name, found)| (name, found.findings))
        .collect();
    assert!(held.is_empty(), "{held:#?}");
}

#[test]
fn a_name_that_is_on_no_list_is_held() {
    assert!(INVENTED.len() >= 250, "{}", INVENTED.len());
    let passed: Vec<_> = INVENTED
        .iter()
        .filter(|name| judge(name, b"hello\n").tier() < Tier::Approve)
        .collect();
    assert!(passed.is_empty(), "{passed:#?}");
    let unknown = INVENTED
        .iter()
        .filter(|name| {
            let found = judge(name, b"hello\n");
            found.findings.iter().any(|one| one.class == Class::Unknown)
        })
        .count();
    assert!(
        unknown >= 200,
        "{unknown} of them are held because their kind is unknown"
    );
}

#[test]
fn every_entry_of_the_catalogue_is_held_pointed_out_or_judged_by_its_content() {
    use bastle_contract::HostExecutedKind as Of;
    for entry in bastle_policy::host_executed::catalogue().unwrap() {
        let pattern = entry.pattern.as_str();
        let plain = pattern.strip_prefix("**/").unwrap_or(pattern);
        let plain = plain
            .strip_suffix("/**")
            .map_or_else(|| plain.replace("/**/", "/x/"), |dir| format!("{dir}/x"));
        let example = entry.example.clone().unwrap_or(plain);
        let expected = match entry.kind {
            Of::Script | Of::Advisory => Tier::Flag,
            _ => Tier::Approve,
        };
        let found = judge(&example, b"\x01 broken {");
        assert!(
            found.tier() >= expected,
            "{pattern}: {example}: {:?}",
            found.findings
        );
    }
}
