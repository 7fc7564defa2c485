//! The knobs of a workload: names with numbers, each workload knows its own.
//!
//! In: `key=value` pairs from the command line or a test.
//! Out: numbers; a key that the workload does not know is an error that names the known ones, because a knob
//! that is silently ignored makes a measurement lie.

use anyhow::{Context, bail};
use std::cell::RefCell;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub struct Knobs {
    given: BTreeMap<String, f64>,
    scale: Option<f64>,
    asked: RefCell<Vec<(String, f64, &'static str)>>,
}

impl Knobs {
    /// Parses `key=value`; values are numbers, `true`/`false` or percentages (`20%`).
    pub fn parse(pairs: &[String]) -> anyhow::Result<Knobs> {
        let mut knobs = Knobs::default();
        for pair in pairs {
            let (key, value) = pair
                .split_once('=')
                .with_context(|| format!("a knob is written key=value, not «{pair}»"))?;
            let number = match value {
                "true" | "on" | "yes" => 1.0,
                "false" | "off" | "no" => 0.0,
                _ => match value.strip_suffix('%') {
                    Some(percent) => percent.parse::<f64>().map(|percent| percent / 100.0),
                    None => value.replace('_', "").parse(),
                }
                .with_context(|| format!("the value of the knob «{pair}» is not a number"))?,
            };
            knobs.given.insert(key.to_owned(), number);
        }
        Ok(knobs)
    }

    /// Makes the data so many times larger or smaller than usual.
    pub fn scaled(mut self, scale: f64) -> Knobs {
        self.scale = Some(scale);
        self
    }

    pub fn scale(&self) -> f64 {
        self.scale.unwrap_or(1.0)
    }

    pub fn set(mut self, key: &str, value: f64) -> Knobs {
        self.given.insert(key.to_owned(), value);
        self
    }

    /// The value of a knob, or its default.
    pub fn number(&self, key: &'static str, default: f64, meaning: &'static str) -> f64 {
        self.asked.borrow_mut().push((key.to_owned(), default, meaning));
        self.given.get(key).copied().unwrap_or(default)
    }

    pub fn count(&self, key: &'static str, default: i64, meaning: &'static str) -> i64 {
        (self.number(key, default as f64, meaning) as i64).max(1)
    }

    /// How many rows there are: follows the scale, unless it is given by itself.
    pub fn size(&self, key: &'static str, default: i64, meaning: &'static str) -> i64 {
        self.count(key, (default as f64 * self.scale()).round() as i64, meaning)
    }

    /// A share between 0 and 1.
    pub fn share(&self, key: &'static str, default: f64, meaning: &'static str) -> f64 {
        self.number(key, default, meaning).clamp(0.0, 1.0)
    }

    pub fn flag(&self, key: &'static str, default: bool, meaning: &'static str) -> bool {
        self.number(key, f64::from(u8::from(default)), meaning) != 0.0
    }

    /// Every given knob was asked for.
    pub fn finish(&self, workload: &str) -> anyhow::Result<()> {
        let asked = self.asked.borrow();
        for key in self.given.keys() {
            if !asked.iter().any(|(known, _, _)| known == key) {
                let known: Vec<&str> = asked.iter().map(|(known, _, _)| known.as_str()).collect();
                bail!("{workload} has no knob «{key}»; it has: {}", known.join(", "));
            }
        }
        Ok(())
    }

    /// Name, default and meaning of every knob that was asked for.
    pub fn described(&self) -> Vec<(String, f64, &'static str)> {
        self.asked.borrow().clone()
    }
}
