//! The gate against contents and places that hide what they are: encodings, spellings, padding.
use super::structure_tests::{Files, lab, why};
use super::*;

#[test]
fn a_comment_that_changes_how_a_list_of_packages_is_decoded_is_held() {
    let lab = lab();
    let evil = "# notes +AAo-evil-package+AD0APQ-1.0\n";
    for (name, before, after) in [
        (
            "requirements.txt",
            "a==1\n".to_owned(),
            format!("# -*- coding: utf-7 -*-\n{evil}a==1\n"),
        ),
        (
            "requirements-dev.txt",
            "# one\n# two\na==1\n".to_owned(),
            format!("# one\n# vim: set fileencoding=utf-7 :\na==1\n{evil}"),
        ),
        // The declaration is there already, and the content comes now.
        (
            "requirements.txt",
            "# coding=utf-7\na==1\n".to_owned(),
            format!("# coding=utf-7\na==1\n{evil}"),
        ),
        // A line goes away, so that the declaration comes into force.
        (
            "requirements.txt",
            format!("# one\n# two\n# coding: utf-7\na==1\n{evil}"),
            format!("# two\n# coding: utf-7\na==1\n{evil}"),
        ),
        (
            "requirements.txt",
            "a==1\n".to_owned(),
            "# coding: utf-8 coding: utf-7\na==1\n".to_owned(),
        ),
        (
            "requirements.in",
            "a==1\n".to_owned(),
            format!("# CODING : UTF-7\na==1\n{evil}"),
        ),
        (
            "Gemfile",
            "gem 'a'\n".to_owned(),
            "# encoding: utf-16le\ngem 'a'\n".to_owned(),
        ),
        // The reader ends a line at these.
        (
            "requirements.txt",
            "a==1\n".to_owned(),
            "a==1\n# note\u{1c}evil\n".to_owned(),
        ),
        (
            "requirements.txt",
            "a==1 \\ \nb==1\n".to_owned(),
            "a==1 \\\nb==1\n".to_owned(),
        ),
    ] {
        let one = lab.change(name, &before, &after);
        assert_eq!(one.tier(), Tier::Approve, "{name} {after:?}: {:?}", one.findings);
    }
    for (name, before, after) in [
        (
            "requirements.txt",
            "a==1\n",
            "# -*- coding: utf-8 -*-\n# why\na==1\n",
        ),
        (
            "requirements.txt",
            "# about encoding files\na==1\n",
            "# about decoding files\na==1\n",
        ),
        ("Gemfile", "gem 'a'\n", "# encoding: UTF-8\ngem 'a'\n"),
        ("go.mod", "module a\n", "// coding: utf-7\nmodule a\n"),
    ] {
        let one = lab.change(name, before, after);
        assert_eq!(one.tier(), Tier::Note, "{name} {after:?}: {:?}", one.findings);
    }
}

#[test]
fn a_deployment_is_held_however_its_keys_are_written() {
    let lab = lab();
    for (name, content) in [
        ("data/a.json", r#"{"kind":"Pod","apiVersion":"v1"}"#),
        ("data/a.yaml", "'apiVersion': v1\n'kind': Pod\n"),
        ("data/a.yaml", "{apiVersion: v1, kind: Pod}\n"),
        ("data/a.yaml", "? apiVersion\n: v1\n? kind\n: Pod\n"),
        ("data/a.yaml", "- \"hosts\": all\n  \"tasks\": []\n"),
        ("data/a.yaml", "- hosts : all\n  roles : []\n"),
        ("data/a.yaml", "- import_playbook: evil.yml\n"),
    ] {
        let one = lab.change(name, "", content);
        assert_eq!(one.tier(), Tier::Approve, "{content}: {:?}", one.findings);
        assert!(why(&one).contains("executed by"), "{content}: {}", why(&one));
    }
    for content in [r#"{"kind":"x","text":"apiVersion: v1"}"#, r#"{"hosts":["a"]}"#] {
        let one = lab.change("data/a.json", "", content);
        assert_eq!(one.tier(), Tier::Note, "{content}: {:?}", one.findings);
    }
}

#[test]
fn a_file_too_large_to_be_read_is_held_as_text_and_its_head_is_read() {
    let lab = lab();
    let padded = |head: &str| format!("{head}{}", "x\n".repeat(5 << 20));
    for name in ["src/a.js", "data/a.yaml", "docs/a.md", "data/a.csv"] {
        let one = lab.change(name, "x\n", &padded(""));
        assert_eq!(one.tier(), Tier::Approve, "{name}: {:?}", one.findings);
        assert!(why(&one).contains("too large"), "{name}: {}", why(&one));
    }
    for (head, told) in [("\x7fELF", "compiled program"), ("#!/bin/sh\n", "interpreter")] {
        let one = lab.change("assets/a.png", "x\n", &padded(head));
        assert_eq!(one.tier(), Tier::Approve, "{head}: {:?}", one.findings);
        assert!(why(&one).contains(told), "{head}: {}", why(&one));
    }
    // The control: a large picture is pointed out.
    let one = lab.change("assets/a.png", "x\n", &padded(""));
    assert_eq!(one.tier(), Tier::Flag, "{:?}", one.findings);
}

#[test]
fn a_manifest_that_publishes_a_file_from_elsewhere_is_held() {
    let lab = lab();
    for (name, before, after) in [
        (
            "Cargo.toml",
            "[package]\nname='a'\n",
            "[package]\nname='a'\nreadme='/root/.ssh/id_ed25519'\n",
        ),
        (
            "Cargo.toml",
            "[package]\nname='a'\n",
            "[package]\nname='a'\nreadme='../../secret.md'\n",
        ),
        (
            "Cargo.toml",
            "[package]\nname='a'\n",
            "[package]\nname='a'\nlicense-file='.env'\n",
        ),
        (
            "Cargo.toml",
            "[package]\nname='a'\n",
            "[package]\nname='a'\nreadme='docs/.hidden/a'\n",
        ),
        (
            "pyproject.toml",
            "[project]\nname='a'\n",
            "[project]\nname='a'\nreadme={file='../x',content-type='text/plain'}\n",
        ),
        (
            "pyproject.toml",
            "[project]\nname='a'\n",
            "[project]\nname='a'\nlicense-files=['[.]env']\n",
        ),
    ] {
        let one = lab.change(name, before, after);
        assert_eq!(one.tier(), Tier::Approve, "{after}: {:?}", one.findings);
    }
    for (name, before, after) in [
        (
            "Cargo.toml",
            "[package]\nname='a'\n",
            "[package]\nname='a'\nreadme='./docs/README.md'\nlicense-file='LICENSE'\n",
        ),
        (
            "pyproject.toml",
            "[project]\nname='a'\n",
            "[project]\nname='a'\nreadme={text='../x: see there',content-type='text/plain'}\nlicense-files=['LICEN*']\n",
        ),
        (
            "Cargo.toml",
            "[package]\nname='a'\nreadme='../README.md'\n",
            "[package]\nname='a'\n",
        ),
    ] {
        let one = lab.change(name, before, after);
        assert_eq!(one.tier(), Tier::Note, "{after}: {:?}", one.findings);
    }
}

#[test]
fn a_script_beside_the_configuration_of_a_site_is_held_and_any_other_is_pointed_out() {
    let lab = lab();
    let site: Files<'_> = &[("_config.yml", "a: b\n"), ("themes/own/_config.yml", "a: b\n")];
    let with = |name: &str| -> Assessed {
        let mut after = site.to_vec();
        after.push((name, "hello\n"));
        lab.judge(site, &after)[name].clone()
    };
    for name in ["scripts/x.js", "scripts/deep/x.js", "themes/own/scripts/x.js"] {
        assert_eq!(
            with(name).tier(),
            Tier::Approve,
            "{name}: {:?}",
            with(name).findings
        );
    }
    assert_eq!(
        lab.judge(&[], &[("scripts/x.js", "hello\n")])["scripts/x.js"].tier(),
        Tier::Flag
    );
    assert_eq!(with("sub/scripts/x.js").tier(), Tier::Flag);
}

#[test]
fn sources_near_to_names_that_tools_load_pass() {
    let lab = lab();
    for name in [
        "src/__mocks__/axios.ts",
        "src/data/words.edn",
        "resources/words.edn",
        "lib/main.dart",
        "src/build.dart",
        "src/parse.rkt",
        "app/plugins/cache/redis.py",
        "src/app/_utils/list.py",
        "app/attributes/user.rb",
        "lib/plugin.rb",
        "src/patches/apply.ts",
        "src/fuse.rs",
    ] {
        let one = lab.judge(&[], &[(name, "hello\n")])[name].clone();
        assert_eq!(one.tier(), Tier::Note, "{name}: {:?}", one.findings);
    }
}
