//! The decoy credential of one run: made of chance, worth nothing, and looked for in everything that goes out.
use super::phantom;
use bastle_contract::Fault;

/// A decoy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Canary {
    /// What egress looks for.
    pub(crate) values: Vec<String>,
    /// The file in which it lies.
    pub(crate) file: String,
}

impl Canary {
    /// Makes one. Its profile is none that a tool uses by itself: only who goes looking finds it.
    pub(crate) fn make() -> Result<Self, Fault> {
        // The shape of the two halves of a key, as a known service writes them.
        let id = phantom::make("AKIA")?;
        let id: String = id.chars().take(20).collect::<String>().to_ascii_uppercase();
        let secret: String = phantom::make(&"x".repeat(40))?.chars().take(40).collect();
        let file = format!("[backup-admin]\naws_access_key_id = {id}\naws_secret_access_key = {secret}\n");
        Ok(Self {
            values: vec![secret, id],
            file,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_decoys_have_nothing_in_common_and_have_the_shape_of_a_key() {
        let (one, other) = (Canary::make().unwrap(), Canary::make().unwrap());
        assert!(one.values.iter().all(|value| !other.values.contains(value)));
        let [secret, id] = one.values.as_slice() else {
            panic!("{one:?}");
        };
        assert_eq!((secret.len(), id.len()), (40, 20));
        assert!(id.starts_with("AKIA"));
        assert!(one.values.iter().all(|value| one.file.contains(value.as_str())));
        assert!(
            one.values
                .iter()
                .all(|value| value.bytes().all(|b| b.is_ascii_alphanumeric()))
        );
    }
}
