//! What tokens cost: a table that is data, matched by the model's name.
//!
//! **Trust:** the table is part of the program, or comes from a trusted policy layer.
use bastle_contract::egress::ModelUse;
use bastle_policy::ModelPrice;
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

    /// Whether some pattern names the model.
    pub(crate) fn knows(&self, model: &str) -> bool {
        self.find(model).is_some()
    }

    /// What `used` costs in millionths of a dollar; `None` where no pattern names the model.
    pub(crate) fn cost(&self, used: &ModelUse) -> Option<u64> {
        self.find(&used.model).map(|price| price.of(used))
    }

    /// The same at a price that policy states.
    pub(crate) fn cost_at(price: ModelPrice, used: &ModelUse) -> u64 {
        let dollars = |nano: u64| nano as f64 / 1000.0;
        let price = Price {
            model: String::new(),
            input: dollars(price.input),
            output: dollars(price.output),
            cache_read: dollars(price.cache_read),
            cache_write: dollars(price.cache_write),
        };
        price.of(used)
    }

    /// The most that `used` could cost, by any line of the table: for a model nobody named.
    pub(crate) fn dearest(&self, used: &ModelUse) -> u64 {
        self.models.iter().map(|price| price.of(used)).max().unwrap_or(0)
    }

    fn find(&self, model: &str) -> Option<&Price> {
        // Brokers put the vendor before the name, `vendor/model` or `vendor.model-v1:0`.
        let name = model.rsplit('/').next().unwrap_or_default();
        let fits = |price: &&Price, name: &str| match price.model.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == price.model,
        };
        let best = |name: &str| {
            let fitting = self.models.iter().filter(|price| fits(price, name));
            fitting.max_by_key(|price| price.model.len())
        };
        best(name).or_else(|| best(name.rsplit_once("anthropic.")?.1))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.models.len()
    }
}

impl Price {
    fn of(&self, used: &ModelUse) -> u64 {
        // A dollar for a million tokens is a millionth of a dollar for one.
        let micro = [
            (used.input, self.input),
            (used.output, self.output),
            (used.cache_read, self.cache_read),
            (used.cache_write, self.cache_write),
        ]
        .iter()
        .map(|(tokens, dollars)| *tokens as f64 * dollars)
        .sum::<f64>();
        // The conversion saturates; rounding up never undercounts.
        micro.ceil() as u64
    }
}
