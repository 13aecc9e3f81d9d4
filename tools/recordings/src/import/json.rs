//! Reads JSON documents of other tools.

use std::{
    fmt,
    io::{self, BufRead},
};

use binpool_trace::TraceError;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::objects::{Id, Object, Objects};

use crate::error;

/// Reads a document. `serde_json` limits the depth of its nesting.
pub(crate) fn read(reader: impl BufRead) -> Result<Objects, TraceError> {
    let mut objects = Objects::default();
    let mut json = serde_json::Deserializer::from_reader(reader);
    let read = Value(&mut objects)
        .deserialize(&mut json)
        .and_then(|root| json.end().map(|()| root));
    match read {
        Ok(root) => {
            objects.complete(root);
            Ok(objects)
        }
        Err(error) if error.is_io() => Err(io::Error::from(error).into()),
        Err(error) => {
            let place = format!("line {}, column {}", error.line(), error.column());
            let problem = if error.is_eof() {
                error::truncated()
            } else {
                TraceError::malformed(error)
            };
            Err(problem.at(place))
        }
    }
}

/// Reads one value into the document.
struct Value<'o>(&'o mut Objects);

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = Id;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Id, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = Id;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, is: bool) -> Result<Id, E> {
        Ok(self.0.add(Object::Integer(is.into())))
    }

    fn visit_unit<E: Error>(self) -> Result<Id, E> {
        Ok(self.0.add(Object::Other))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Id, E> {
        Ok(self.0.add(Object::Other))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Id, E> {
        Ok(self.0.add(Object::Integer(number)))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Id, E> {
        let number = i64::try_from(number).map_or(Object::Other, Object::Integer);
        Ok(self.0.add(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Id, E> {
        Ok(self.0.add_text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Id, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(Value(self.0))? {
            items.push(item);
        }
        Ok(self.0.add(Object::List(items)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Id, A::Error> {
        let mut pairs = Vec::new();
        while let Some(key) = map.next_key_seed(Value(self.0))? {
            pairs.push((key, map.next_value_seed(Value(self.0))?));
        }
        Ok(self.0.add(Object::Dict(pairs)))
    }
}
