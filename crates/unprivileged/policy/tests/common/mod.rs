//! Shared by the integration tests: a home, a workspace, and layers from text.
#![allow(dead_code)]
pub(crate) mod launch;

use bastle_contract::AbsPath;
use bastle_policy::{
    Decision, Effective, Expansion, Layer, LayerKind, MergeOptions, Outcome, Query, Surroundings, decide,
    floor, merge, parse, preset,
};

pub(crate) fn path(text: &str) -> AbsPath {
    AbsPath::new(text).unwrap()
}

pub(crate) fn surroundings() -> Surroundings {
    Surroundings {
        home: path("/home/u"),
        workspace: path("/home/u/w"),
    }
}

pub(crate) fn layer(kind: LayerKind, text: &str) -> Layer {
    let name = format!("{}.json", kind.name());
    let document = parse(&name, text.as_bytes()).unwrap_or_else(|f| panic!("{text}: {f:#?}"));
    Layer {
        kind,
        name,
        document: document.into(),
    }
}

pub(crate) fn merged(layers: &[Layer]) -> Effective {
    merge(layers, &surroundings(), &MergeOptions::default()).unwrap()
}

pub(crate) fn expanded(layers: &[Layer]) -> Effective {
    merge(
        layers,
        &surroundings(),
        &MergeOptions {
            expansion: Expansion::Allowed,
            ..MergeOptions::default()
        },
    )
    .unwrap()
}

/// The floor, preset `default`, and these.
pub(crate) fn with_default(more: &[(LayerKind, &str)]) -> Vec<Layer> {
    let mut layers = vec![floor().unwrap(), preset("default").unwrap()];
    layers.extend(more.iter().map(|(kind, text)| layer(*kind, text)));
    layers
}

pub(crate) fn ask(effective: &Effective, question: &str) -> Decision {
    decide(effective, &Query::parse(question, &surroundings()).unwrap())
}

pub(crate) fn answer(effective: &Effective, question: &str) -> Outcome {
    ask(effective, question).outcome
}
