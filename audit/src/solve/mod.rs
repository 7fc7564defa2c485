//! What neither windows nor a handful of choices decide.
//!
//! A total over many rows that many commits may or may not have changed has more right answers than can be tried one by
//! one. [`linear`] says what each row, and each number, of an answer is made of; [`chains`] which versions of which rows
//! are open, and what each of them adds; [`smt`] asks Z3 which commits a snapshot must have seen for all of it to come
//! out as it did.

pub mod alone;
pub mod linear;
pub mod chains;
pub mod smt;
