//! What a person gives up by name on the command line; printed and audited.
use crate::{Guarantee, LandlockParts, LaunchPlan, LimitKind};
use serde::{Deserialize, Serialize};
use std::fmt;

/// One control that is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Waiver {
    /// A limit that this host cannot hold.
    Limit(LimitKind),
    /// A layer of the fence that this kernel lacks. One that it has is enforced all the same.
    Layer(WaivedLayer),
}

/// A layer that can be given up, because each of its guarantees has something else that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaivedLayer {
    /// Landlock, every part of it.
    Landlock,
}

impl WaivedLayer {
    /// Every layer.
    pub const ALL: [Self; 1] = [Self::Landlock];

    /// The name behind `--waive`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Landlock => "landlock",
        }
    }
}

impl Waiver {
    /// What is given up without Landlock.
    pub const LANDLOCK: Self = Self::Layer(WaivedLayer::Landlock);

    /// A limit or a layer, by its name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let limits = LimitKind::ALL
            .iter()
            .map(|limit| (limit.name(), Self::Limit(*limit)));
        let layers = WaivedLayer::ALL
            .iter()
            .map(|layer| (layer.name(), Self::Layer(*layer)));
        let mut all = limits.chain(layers);
        all.find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, waiver)| waiver)
    }

    /// Every name that can be given up.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let limits = LimitKind::ALL.iter().map(|limit| limit.name());
        limits.chain(WaivedLayer::ALL.iter().map(|layer| layer.name()))
    }
}

impl fmt::Display for Waiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit(limit) => write!(f, "limits.{limit}"),
            Self::Layer(layer) => f.write_str(layer.name()),
        }
    }
}

impl LaunchPlan {
    /// Whether it is for a kernel without Landlock, by a person's word. Without that word a plan without Landlock is refused.
    #[must_use]
    pub fn is_without_landlock(&self) -> bool {
        self.landlock_parts == LandlockParts::NONE && self.waivers.contains(&Waiver::LANDLOCK)
    }

    /// What has to be proven of Landlock, or in its place, whatever else the plan requires.
    #[must_use]
    pub fn landlock_guarantees(&self) -> Vec<Guarantee> {
        if self.is_without_landlock() {
            LandlockParts::replacements()
        } else {
            self.landlock_parts.guarantees()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiver_is_one_key_on_the_wire_and_has_the_name_that_a_person_gives() {
        let text = |waiver: &Waiver| serde_json::to_string(waiver).unwrap();
        let memory = Waiver::named("Memory").unwrap();
        assert_eq!(text(&memory), r#"{"limit":"memory"}"#);
        assert_eq!(text(&Waiver::LANDLOCK), r#"{"layer":"landlock"}"#);
        assert_eq!(Waiver::named("landlock"), Some(Waiver::LANDLOCK));
        assert_eq!(Waiver::named("seccomp"), None);
        for name in Waiver::names() {
            let waiver = Waiver::named(name).unwrap();
            assert_eq!(serde_json::from_str::<Waiver>(&text(&waiver)).unwrap(), waiver);
        }
        for bad in [
            r#"{"limit":"memory","layer":"landlock"}"#,
            r#"{"layer":"seccomp"}"#,
            "{}",
        ] {
            assert!(serde_json::from_str::<Waiver>(bad).is_err(), "{bad}");
        }
    }
}
