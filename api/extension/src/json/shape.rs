//! What the JSON of a type looks like, as data: the names, types and descriptions that a schema of a custom
//! resource is made of.
//!
//! [`json_object!`](crate::json_object) and [`json_words!`](crate::json_words) describe the types they
//! define: the comments at the fields are the descriptions.

use std::collections::BTreeMap;

/// What a JSON value looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// true or false.
    Boolean,
    /// A whole number of 32 bits.
    Int32,
    /// A whole number of 64 bits.
    Int64,
    /// A number.
    Number,
    /// Any text.
    Text,
    /// A text, usually one of these; an empty one among them stands for a field that is left out.
    Words(&'static [&'static str]),
    /// A Kubernetes quantity: a text, or a whole number.
    Quantity,
    /// A whole number or a text, which mean different things.
    IntegerOrText,
    /// A time as in RFC 3339.
    Time,
    /// Anything.
    Anything,
    /// A list.
    List(Box<Shape>),
    /// An object with any keys and these values.
    Map(Box<Shape>),
    /// An object with these fields.
    Object(ObjectShape),
}

/// An object with known fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectShape {
    /// Name of its Rust type.
    pub name: &'static str,
    /// What it is.
    pub description: String,
    /// Its fields, in the order they are written.
    pub fields: Vec<FieldShape>,
}

/// A field of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldShape {
    /// Its key.
    pub key: &'static str,
    /// What it is.
    pub description: String,
    /// What its value looks like.
    pub shape: Shape,
}

/// A type that tells what its JSON looks like.
pub trait Described {
    /// What its JSON looks like.
    fn shape() -> Shape;
}

impl ObjectShape {
    /// An object with these fields; the description is put together from the lines of a comment.
    pub fn new(name: &'static str, comment: &str, fields: Vec<FieldShape>) -> ObjectShape {
        ObjectShape { name, description: sentence(comment), fields }
    }
}

impl FieldShape {
    /// A field that holds a `T`; the description is put together from the lines of a comment.
    pub fn of<T: Described>(key: &'static str, comment: &str) -> FieldShape {
        FieldShape { key, description: sentence(comment), shape: T::shape() }
    }
}

/// The lines of a comment on one line.
fn sentence(comment: &str) -> String {
    comment.split_whitespace().collect::<Vec<_>>().join(" ")
}

macro_rules! described {
    ($($type:ty => $shape:ident;)*) => {$(
        impl Described for $type {
            fn shape() -> Shape {
                Shape::$shape
            }
        }
    )*};
}

described! {
    bool => Boolean;
    i32 => Int32;
    // Kubernetes has no unsigned numbers; one of 32 bits fits into a signed one of 64.
    u32 => Int64;
    i64 => Int64;
    f64 => Number;
    String => Text;
    serde_json::Value => Anything;
    crate::quantity::Quantity => Quantity;
    crate::timestamp::Timestamp => Time;
    crate::duration::GoDuration => Text;
}

impl<T: Described> Described for Option<T> {
    fn shape() -> Shape {
        T::shape()
    }
}

impl<T: Described> Described for Vec<T> {
    fn shape() -> Shape {
        Shape::List(Box::new(T::shape()))
    }
}

impl<K, T: Described> Described for BTreeMap<K, T> {
    fn shape() -> Shape {
        Shape::Map(Box::new(T::shape()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotation::{AggregatePolicy, Block, NodeReservation, PodCpuAllocs, ReservationApplyPolicy};

    fn field(key: &'static str, description: &str, shape: Shape) -> FieldShape {
        FieldShape { key, description: description.to_owned(), shape }
    }

    #[test]
    fn a_type_is_described_by_its_comments() {
        let wanted = ObjectShape {
            name: "NodeReservation",
            description: "Resources and CPUs that are kept from pods.".to_owned(),
            fields: vec![
                field("resources", "Resources.", Shape::Map(Box::new(Shape::Quantity))),
                field("reservedCPUs", "CPUs, a Linux CPU list.", Shape::Text),
                field(
                    "applyPolicy",
                    "What it takes from the node.",
                    Shape::Words(ReservationApplyPolicy::WORDS),
                ),
            ],
        };
        assert_eq!(NodeReservation::shape(), Shape::Object(wanted));
        assert_eq!(ReservationApplyPolicy::WORDS, ["", "Default", "ReservedCPUsOnly"]);
    }

    #[test]
    fn types_within_types_are_described_in_full() {
        let Shape::Object(policy) = AggregatePolicy::shape() else { panic!("not an object") };
        assert_eq!(policy.fields[0].shape, Shape::List(Box::new(Shape::Text)));
        let Shape::Object(block) = Block::shape() else { panic!("not an object") };
        assert!(matches!(&block.fields[2].shape, Shape::Object(settings) if settings.name == "IoConfig"));
        let Shape::List(alloc) = PodCpuAllocs::shape() else { panic!("not a list") };
        assert!(matches!(*alloc, Shape::Object(alloc) if alloc.name == "PodCpuAlloc"));
    }

    #[test]
    fn the_lines_of_a_comment_become_one() {
        assert_eq!(
            ObjectShape::new("T", " One\n  line. Another", Vec::new()).description,
            "One line. Another"
        );
    }
}
