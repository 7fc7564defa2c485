//! Says a verdict to people and machines.
//!
//! In: a [`Summary`](crate::verdict::Summary) or one [`Violation`](crate::verdict::Violation).
//! Out: text, and nothing but text: terminal, JSON, JUnit, SARIF, Markdown, HTML, SVG, scripts.
//!
//! Always true:
//!   - the same verdict gives the same bytes; nothing here asks a clock, a terminal or the environment;
//!   - nothing here decides anything: what is said was concluded before;
//!   - text that came over the wire is escaped for the language it is put into.

pub mod redact;
pub mod brief;
pub mod reasons;
pub mod steps;
pub mod gate;
pub mod text;
pub mod json;
pub mod trace;
pub mod junit;
pub mod source;
pub mod sarif;
pub mod markdown;
pub mod svg;
pub mod html;
pub mod script;
pub mod spec;
pub mod sample;
