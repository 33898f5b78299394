//! Reading JSON as Koordinator's Go programs read it, and writing it as they write it.
//!
//! A key is matched exactly first and then without regard to case; of duplicates the last one wins; `null`
//! leaves the default; an unknown key is passed over; a value of the wrong type is an error. Writers use the
//! exact case and leave out what is empty.

pub mod shape;

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A value that JSON is read into.
pub trait Fill: Default {
    /// Takes over what the JSON says. `null` says nothing.
    fn fill<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error>;

    /// Whether a field of this value is left out when written (`omitempty` in Go).
    fn is_omitted(&self) -> bool {
        false
    }
}

/// A JSON object with known fields, made by [`json_object!`](crate::json_object).
pub trait Object: Fill {
    /// The field with exactly this key.
    fn field_named(key: &str) -> Option<&'static str>;

    /// The field with this key in any case.
    fn field_like(key: &str) -> Option<&'static str>;

    /// Takes over the value that follows in `map` into the field.
    fn fill_field<'de, A: MapAccess<'de>>(
        &mut self,
        field: &'static str,
        map: &mut A,
    ) -> Result<(), A::Error>;
}

/// Whether two keys differ in case at most, by the rules of Go's decoder: the long s and the Kelvin sign
/// are the letters they fold to.
pub fn same_key(one: &str, other: &str) -> bool {
    fn folded(key: &str) -> impl Iterator<Item = char> + '_ {
        key.chars().map(|letter| match letter {
            '\u{17f}' => 's',
            '\u{212a}' => 'k',
            _ => letter.to_ascii_lowercase(),
        })
    }
    one == other || folded(one).eq(folded(other))
}

/// Reads into an existing value.
#[derive(Debug)]
pub struct FillSeed<'a, T>(pub &'a mut T);

impl<'de, T: Fill> DeserializeSeed<'de> for FillSeed<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.0.fill(deserializer)
    }
}

/// Reads an object; `null` leaves it as it is.
pub fn fill_object<'de, T: Object, D: Deserializer<'de>>(
    object: &mut T,
    deserializer: D,
) -> Result<(), D::Error> {
    struct Fields<'a, T>(&'a mut T);

    impl<'de, T: Object> Visitor<'de> for Fields<'_, T> {
        type Value = ();

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an object")
        }

        fn visit_unit<E>(self) -> Result<(), E> {
            Ok(())
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            while let Some(field) = map.next_key_seed(Key::<T>(PhantomData))? {
                match field {
                    Some(field) => self.0.fill_field(field, &mut map)?,
                    None => drop(map.next_value::<IgnoredAny>()?),
                }
            }
            Ok(())
        }
    }

    struct Key<T>(PhantomData<T>);

    impl<'de, T: Object> DeserializeSeed<'de> for Key<T> {
        type Value = Option<&'static str>;

        fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
            deserializer.deserialize_str(self)
        }
    }

    impl<T: Object> Visitor<'_> for Key<T> {
        type Value = Option<&'static str>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a key")
        }

        fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
            Ok(T::field_named(key).or_else(|| T::field_like(key)))
        }
    }

    deserializer.deserialize_any(Fields(object))
}

/// For values that serde reads as a whole.
macro_rules! fill_whole {
    ($($type:ty, $value:ident => $omitted:expr;)*) => {$(
        impl Fill for $type {
            fn fill<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
                if let Some(value) = Option::<$type>::deserialize(deserializer)? {
                    *self = value;
                }
                Ok(())
            }

            fn is_omitted(&self) -> bool {
                let $value = self;
                $omitted
            }
        }
    )*};
}

fill_whole! {
    bool, value => !value;
    i32, value => *value == 0;
    i64, value => *value == 0;
    u32, value => *value == 0;
    f64, value => *value == 0.0;
    String, value => value.is_empty();
    serde_json::Value, value => value.is_null();
    crate::quantity::Quantity, _value => false;
    crate::timestamp::Timestamp, _value => false;
    crate::duration::GoDuration, _value => false;
}

/// Says nothing and so gives `None`, or fills what is there.
struct Maybe<'a, T>(&'a mut Option<T>);

impl<'de, T: Fill> Visitor<'de> for Maybe<'_, T> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value or null")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        *self.0 = None;
        Ok(())
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.0.get_or_insert_default().fill(deserializer)
    }
}

impl<T: Fill> Fill for Option<T> {
    fn fill<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_option(Maybe(self))
    }

    fn is_omitted(&self) -> bool {
        self.is_none()
    }
}

impl<T: Fill> Fill for Vec<T> {
    fn fill<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        struct Items<T>(PhantomData<T>);

        impl<'de, T: Fill> Visitor<'de> for Items<T> {
            type Value = Vec<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list")
            }

            fn visit_unit<E>(self) -> Result<Vec<T>, E> {
                Ok(Vec::new())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
                let mut items = Vec::new();
                loop {
                    let mut item = T::default();
                    if list.next_element_seed(FillSeed(&mut item))?.is_none() {
                        return Ok(items);
                    }
                    items.push(item);
                }
            }
        }

        *self = deserializer.deserialize_any(Items(PhantomData))?;
        Ok(())
    }

    fn is_omitted(&self) -> bool {
        self.is_empty()
    }
}

impl<K: for<'de> Deserialize<'de> + Ord, T: Fill> Fill for BTreeMap<K, T> {
    fn fill<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        struct Entries<'a, K, T>(&'a mut BTreeMap<K, T>);

        impl<'de, K: Deserialize<'de> + Ord, T: Fill> Visitor<'de> for Entries<'_, K, T> {
            type Value = ();

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_unit<E>(self) -> Result<(), E> {
                self.0.clear();
                Ok(())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
                while let Some(key) = map.next_key()? {
                    let mut value = T::default();
                    map.next_value_seed(FillSeed(&mut value))?;
                    self.0.insert(key, value);
                }
                Ok(())
            }
        }

        deserializer.deserialize_any(Entries(self))
    }

    fn is_omitted(&self) -> bool {
        self.is_empty()
    }
}

/// A whole value from nothing.
pub fn filled<'de, T: Fill, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let mut value = T::default();
    value.fill(deserializer)?;
    Ok(value)
}

/// Defines the type of a JSON object: its fields, their keys, reading, writing and description.
///
/// A field marked `keep` is written even when it is empty.
#[macro_export]
macro_rules! json_object {
    ($(
        $(#[doc = $doc:literal])*
        pub struct $name:ident {
            $($(#[doc = $field_doc:literal])* $field:ident: $type:ty = $key:literal $($keep:ident)?,)*
        }
    )*) => {$(
        $(#[doc = $doc])*
        #[derive(Debug, Clone, PartialEq, Default)]
        pub struct $name {
            $($(#[doc = $field_doc])* pub $field: $type,)*
        }

        impl $crate::json::shape::Described for $name {
            fn shape() -> $crate::json::shape::Shape {
                let fields = vec![$(
                    $crate::json::shape::FieldShape::of::<$type>($key, concat!($($field_doc,)*)),
                )*];
                let object = $crate::json::shape::ObjectShape::new(
                    stringify!($name),
                    concat!($($doc,)*),
                    fields,
                );
                $crate::json::shape::Shape::Object(object)
            }
        }

        impl $crate::json::Object for $name {
            fn field_named(key: &str) -> Option<&'static str> {
                $(if key == $key {
                    return Some($key);
                })*
                None
            }

            fn field_like(key: &str) -> Option<&'static str> {
                $(if $crate::json::same_key(key, $key) {
                    return Some($key);
                })*
                None
            }

            fn fill_field<'de, A: ::serde::de::MapAccess<'de>>(
                &mut self,
                field: &'static str,
                map: &mut A,
            ) -> Result<(), A::Error> {
                match field {
                    $($key => map.next_value_seed($crate::json::FillSeed(&mut self.$field)),)*
                    _ => map.next_value::<::serde::de::IgnoredAny>().map(drop),
                }
            }
        }

        impl $crate::json::Fill for $name {
            fn fill<'de, D: ::serde::Deserializer<'de>>(
                &mut self,
                deserializer: D,
            ) -> Result<(), D::Error> {
                $crate::json::fill_object(self, deserializer)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::json::filled(deserializer)
            }
        }

        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = ::serde::Serializer::serialize_map(serializer, None)?;
                $(if $crate::json_object!(@kept $($keep)?) || !$crate::json::Fill::is_omitted(&self.$field) {
                    ::serde::ser::SerializeMap::serialize_entry(&mut map, $key, &self.$field)?;
                })*
                ::serde::ser::SerializeMap::end(map)
            }
        }
    )*};
    (@kept) => {
        false
    };
    (@kept keep) => {
        true
    };
}

/// Defines an enum of the words that a JSON text may hold. A word of a newer release is kept as `Other`.
#[macro_export]
macro_rules! json_words {
    ($(
        $(#[$meta:meta])*
        pub enum $name:ident {
            $(#[$default_meta:meta])* $default:ident = $default_word:literal,
            $($(#[$word_meta:meta])* $variant:ident = $word:literal,)*
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub enum $name {
            $(#[$default_meta])*
            #[default]
            $default,
            $($(#[$word_meta])* $variant,)*
            /// A word this release does not know.
            Other(String),
        }

        impl $name {
            /// The words this release knows.
            pub const WORDS: &'static [&'static str] = &[$default_word, $($word,)*];

            /// As in JSON.
            pub fn as_str(&self) -> &str {
                match self {
                    $name::$default => $default_word,
                    $($name::$variant => $word,)*
                    $name::Other(word) => word,
                }
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> $name {
                match word {
                    $default_word => $name::$default,
                    $($word => $name::$variant,)*
                    _ => $name::Other(word.to_owned()),
                }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                formatter.write_str(self.as_str())
            }
        }

        impl $crate::json::shape::Described for $name {
            fn shape() -> $crate::json::shape::Shape {
                $crate::json::shape::Shape::Words($name::WORDS)
            }
        }

        impl $crate::json::Fill for $name {
            fn fill<'de, D: ::serde::Deserializer<'de>>(
                &mut self,
                deserializer: D,
            ) -> Result<(), D::Error> {
                let word = <Option<String> as ::serde::Deserialize>::deserialize(deserializer)?;
                if let Some(word) = word {
                    *self = $name::from(word.as_str());
                }
                Ok(())
            }

            fn is_omitted(&self) -> bool {
                self.as_str().is_empty()
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::json::filled(deserializer)
            }
        }

        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }
    )*};
}
