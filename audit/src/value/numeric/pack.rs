//! Numerics as few bytes; see [`crate::value::pack`].

use super::{Numeric, Repr};
use crate::value::pack::{
    put_bytes, put_number, put_signed, take_byte, take_bytes, take_number, take_signed,
};
use num_bigint::BigInt;
use std::sync::Arc;

const NAN: u8 = 0;
const INFINITY: u8 = 1;
const NEG_INFINITY: u8 = 2;
const BIG: u8 = 3;
const SMALL: u8 = 4;
/// From here on the first byte also says the scale of a small one.
const SHORT_SCALE: u8 = 5;

impl Numeric {
    pub(in crate::value) fn pack(&self, into: &mut Vec<u8>) {
        match &self.0 {
            Repr::NaN => into.push(NAN),
            Repr::Infinity => into.push(INFINITY),
            Repr::NegInfinity => into.push(NEG_INFINITY),
            Repr::Small(coefficient, scale) if *scale <= u16::from(u8::MAX - SHORT_SCALE) => {
                into.push(SHORT_SCALE + *scale as u8);
                put_signed(*coefficient, into);
            }
            Repr::Small(coefficient, scale) => {
                into.push(SMALL);
                put_number((*scale).into(), into);
                put_signed(*coefficient, into);
            }
            Repr::Big(coefficient, scale) => {
                into.push(BIG);
                put_number((*scale).into(), into);
                put_bytes(&coefficient.to_signed_bytes_le(), into);
            }
        }
    }

    pub(in crate::value) fn unpack(from: &mut &[u8]) -> Numeric {
        Numeric(match take_byte(from) {
            NAN => Repr::NaN,
            INFINITY => Repr::Infinity,
            NEG_INFINITY => Repr::NegInfinity,
            BIG => {
                let scale = take_number(from) as u16;
                Repr::Big(Arc::new(BigInt::from_signed_bytes_le(take_bytes(from))), scale)
            }
            SMALL => {
                let scale = take_number(from) as u16;
                Repr::Small(take_signed(from), scale)
            }
            short => Repr::Small(take_signed(from), (short - SHORT_SCALE).into()),
        })
    }
}
