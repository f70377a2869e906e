//! What tokens cost: a table that is data, matched by the model's name.
//!
//! **Trust:** the table is part of the program, or comes from a trusted policy layer.
use bastle_contract::egress::ModelUse;
use serde::Deserialize;

/// The table that ships with the program.
const BUILT_IN: &str = include_str!("../prices.json");

/// Prices by pattern; the longest pattern that matches holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prices {
    models: Vec<Price>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[expect(dead_code, reason = "for readers of the file")]
    note: String,
    #[expect(dead_code, reason = "for readers of the file")]
    date: String,
    models: Vec<Price>,
}

/// Dollars for a million tokens.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Price {
    /// A name, or the beginning of one and `*`.
    model: String,
    input: f64,
    output: f64,
    cache_read: f64,
    cache_write: f64,
}

impl Prices {
    /// The table that ships with the program. One that cannot be read holds no price, and a test keeps it readable.
    pub(crate) fn built_in() -> Self {
        let models = serde_json::from_str::<Table>(BUILT_IN).map(|table| table.models);
        Self {
            models: models.unwrap_or_default(),
        }
    }

    /// What `used` costs in millionths of a dollar; `None` where no pattern names the model.
    pub(crate) fn cost(&self, used: &ModelUse) -> Option<u64> {
        // Brokers put the vendor before the name: `vendor/model`.
        let name = used.model.rsplit('/').next().unwrap_or_default();
        let fits = |price: &&Price| match price.model.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == price.model,
        };
        let price = self.models.iter().filter(fits).max_by_key(|p| p.model.len())?;
        // A dollar for a million tokens is a millionth of a dollar for one.
        let micro = [
            (used.input, price.input),
            (used.output, price.output),
            (used.cache_read, price.cache_read),
            (used.cache_write, price.cache_write),
        ]
        .iter()
        .map(|(tokens, dollars)| *tokens as f64 * dollars)
        .sum::<f64>();
        // The conversion saturates; rounding up never undercounts.
        Some(micro.ceil() as u64)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.models.len()
    }
}
