// SPDX-License-Identifier: MPL-2.0

//! Numbers, times and texts in JSON that lose nothing, for `serde(with)`.

use serde::{Deserialize, Serialize};

/// Times in nanoseconds.
pub mod time {
    use gst::ClockTime;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// A time, or the lack of one.
    pub trait Time: Copy {
        fn get(self) -> Option<u64>;
        fn of(nanoseconds: Option<u64>) -> Option<Self>;
    }

    impl Time for ClockTime {
        fn get(self) -> Option<u64> {
            Some(self.nseconds())
        }
        fn of(nanoseconds: Option<u64>) -> Option<Self> {
            nanoseconds.map(Self::from_nseconds)
        }
    }

    impl Time for Option<ClockTime> {
        fn get(self) -> Option<u64> {
            self.map(ClockTime::nseconds)
        }
        fn of(nanoseconds: Option<u64>) -> Option<Self> {
            Some(nanoseconds.map(ClockTime::from_nseconds))
        }
    }

    pub fn serialize<T: Time, S: Serializer>(time: &T, s: S) -> Result<S::Ok, S::Error> {
        time.get().serialize(s)
    }

    pub fn deserialize<'a, T: Time, D: Deserializer<'a>>(d: D) -> Result<T, D::Error> {
        T::of(Option::deserialize(d)?).ok_or_else(|| serde::de::Error::custom("a time is missing"))
    }
}

/// Texts that are shared.
pub mod text {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(text: &Option<Arc<str>>, s: S) -> Result<S::Ok, S::Error> {
        text.as_deref().serialize(s)
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(d: D) -> Result<Option<Arc<str>>, D::Error> {
        Ok(Option::<String>::deserialize(d)?.map(Arc::from))
    }
}

/// Numbers of which JSON knows the finite ones alone; the others are texts.
#[derive(Deserialize, Serialize)]
#[serde(untagged)]
enum Number {
    Finite(f64),
    Other(String),
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        if value.is_finite() { Self::Finite(value) } else { Self::Other(value.to_string()) }
    }
}

impl Number {
    fn get<E: serde::de::Error>(self) -> Result<f64, E> {
        match self {
            Self::Finite(value) => Ok(value),
            Self::Other(text) => text.parse().map_err(E::custom),
        }
    }
}

/// Values of a row.
pub mod numbers {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Number;

    pub fn serialize<S: Serializer>(values: &[f64], s: S) -> Result<S::Ok, S::Error> {
        values.iter().map(|value| Number::from(*value)).collect::<Vec<_>>().serialize(s)
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(d: D) -> Result<Vec<f64>, D::Error> {
        Vec::<Number>::deserialize(d)?.into_iter().map(Number::get).collect()
    }
}

/// Values with their names.
pub mod named {
    use std::borrow::Cow;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Number;

    type Named = [(Cow<'static, str>, f64)];

    pub fn serialize<S: Serializer>(values: &Named, s: S) -> Result<S::Ok, S::Error> {
        values.iter().map(|(name, value)| (name, Number::from(*value))).collect::<Vec<_>>().serialize(s)
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(d: D) -> Result<Vec<(Cow<'static, str>, f64)>, D::Error> {
        let values = Vec::<(String, Number)>::deserialize(d)?.into_iter();
        values.map(|(name, value)| Ok((name.into(), value.get()?))).collect()
    }
}
