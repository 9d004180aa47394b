//! Numbers of rows, each with its own type: a job's number does not compile where an effect's number is expected.
//!
//! In the database and in JSON they are plain numbers. sqlx binds and reads them as numbers, in your own statements
//! too.

use std::{fmt, num::ParseIntError, str::FromStr};

use serde::{Deserialize, Serialize};
use sqlx::{Database, Decode, Encode, Type, encode::IsNull, error::BoxDynError};

use crate::lease::WorkerId;

/// A job's number in its database. A job that is enqueued later has a higher one.
///
/// ```
/// use rowlock::JobId;
///
/// let id: JobId = "42".parse()?;
/// assert_eq!((id, id.to_string()), (JobId::from(42), "42".to_owned()));
/// # Ok::<(), std::num::ParseIntError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub(crate) i64);

/// An effect's number in its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EffectNo(pub(crate) i64);

/// The number of a row of the audit. A later row has a higher one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AuditNo(pub(crate) i64);

/// The number of an error that cases share, the same in every database. As text it is twelve hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ErrorNo(pub(crate) i64);

/// What every number has: `i64` on both sides, and sqlx's traits.
macro_rules! number {
    ($($name:ident)*) => {$(
        impl From<i64> for $name {
            fn from(number: i64) -> $name {
                $name(number)
            }
        }

        impl From<$name> for i64 {
            fn from(number: $name) -> i64 {
                number.0
            }
        }

        impl<DB: Database> Type<DB> for $name
        where
            i64: Type<DB>,
        {
            fn type_info() -> DB::TypeInfo {
                <i64 as Type<DB>>::type_info()
            }

            fn compatible(ty: &DB::TypeInfo) -> bool {
                <i64 as Type<DB>>::compatible(ty)
            }
        }

        impl<'q, DB: Database> Encode<'q, DB> for $name
        where
            i64: Encode<'q, DB>,
        {
            fn encode_by_ref(&self, buf: &mut DB::ArgumentBuffer) -> Result<IsNull, BoxDynError> {
                self.0.encode_by_ref(buf)
            }
        }

        impl<'r, DB: Database> Decode<'r, DB> for $name
        where
            i64: Decode<'r, DB>,
        {
            fn decode(value: DB::ValueRef<'r>) -> Result<$name, BoxDynError> {
                <i64 as Decode<'r, DB>>::decode(value).map($name)
            }
        }

        #[cfg(feature = "postgres")]
        impl sqlx::postgres::PgHasArrayType for $name {
            fn array_type_info() -> sqlx::postgres::PgTypeInfo {
                <i64 as sqlx::postgres::PgHasArrayType>::array_type_info()
            }
        }
    )*};
}

number!(JobId EffectNo AuditNo ErrorNo WorkerId);

/// A number whose text is its decimal digits.
macro_rules! decimal {
    ($($name:ident)*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIntError;

            fn from_str(text: &str) -> Result<$name, ParseIntError> {
                text.parse().map($name)
            }
        }
    )*};
}

decimal!(JobId EffectNo AuditNo);

impl fmt::Display for ErrorNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:012x}", self.0)
    }
}

impl FromStr for ErrorNo {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<ErrorNo, ParseIntError> {
        i64::from_str_radix(text, 16).map(ErrorNo)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_reads_its_own_text_and_is_a_number_in_json() {
        assert_eq!("42".parse(), Ok(JobId(42)));
        assert_eq!(JobId(42).to_string(), "42");
        assert_eq!(ErrorNo(0xbeef).to_string(), "00000000beef");
        assert_eq!("00000000beef".parse(), Ok(ErrorNo(0xbeef)));
        assert!("4 2".parse::<JobId>().is_err() && "".parse::<EffectNo>().is_err());
        assert_eq!(serde_json::to_string(&[Some(JobId(42)), None]).unwrap(), "[42,null]");
        assert_eq!(serde_json::from_str::<JobId>("42").unwrap(), JobId(42));
    }

    #[test]
    fn numbers_sort_as_numbers_and_pad_as_numbers() {
        assert!(JobId(9) < JobId(10));
        assert_eq!(format!("{:>4}", JobId(42)), "  42");
    }
}
