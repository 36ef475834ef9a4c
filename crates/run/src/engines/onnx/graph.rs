//! ONNX graph: a list of nodes (operations), which can use the results of earlier nodes, and
//! tensors of weights. The file is a Protocol Buffers message `ModelProto`. Weights are written one
//! tensor at a time, so that memory never has a second copy of all of them.

use std::collections::HashSet;
use std::io::Write;
use std::path::Path;

use anyhow::Result;
use candle_core::DType;
use taper_ops::Parameter;

use crate::folder::files::{with_suffix, write_whole};
use crate::folders::transposed;
use crate::protobuf::Message;

/// Version of the ONNX file format.
const IR_VERSION: u64 = 8;
/// Version of the set of ONNX operators.
const OPERATORS: u64 = 17;
/// Largest size in bytes of a file that contains both graph and weights. Protocol Buffers messages
/// cannot exceed 2 GiB, so a larger model has its weights in a second file.
pub(super) const MOST_BYTES: u64 = 2_000_000_000;
/// Suffix in the name of the second file, which has the weights.
const DATA: &str = "_data";
/// Alignment in bytes of each tensor in the second file, so that the file can be mapped into
/// memory.
const PAGE: u64 = 4096;
/// Size in bytes up to which tensors are always in the first file. Small tensors can be shapes, and
/// shapes must be in the first file.
const SMALL: u64 = 1024;

/// Type of the values of a tensor; its discriminant is the number that stands for the type in ONNX.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Float = 1,
    Integer = 7,
    Truth = 9,
}

/// Length of a tensor along one dimension.
#[derive(Debug, Clone, Copy)]
pub(super) enum Length {
    Fixed(usize),
    /// Length that is known only when the model runs; it has a name in ONNX.
    Named(&'static str),
}

/// Attribute of a node.
#[derive(Debug, Clone)]
pub(super) enum Attribute {
    Integer(i64),
    Float(f32),
    Integers(Vec<i64>),
}

/// Values of a tensor.
enum Values<'a> {
    Integers(Vec<i64>),
    Floats(Vec<f32>),
    /// Values of a parameter from the index `start` on. If `is_transposed`, the values are a
    /// matrix, which is written transposed.
    Part {
        parameter: &'a Parameter,
        start: usize,
        is_transposed: bool,
    },
}

struct Tensor<'a> {
    name: String,
    shape: Vec<usize>,
    values: Values<'a>,
}

/// ONNX graph that is being built.
#[derive(Default)]
pub(super) struct Graph<'a> {
    /// Nodes, encoded as fields of the message `GraphProto`.
    nodes: Message,
    /// Inputs and outputs of the model, encoded as fields of the message `GraphProto`.
    ends: Message,
    tensors: Vec<Tensor<'a>>,
    names: HashSet<String>,
    count: usize,
}

impl<'a> Graph<'a> {
    /// Adds a node that has no attributes and a single result. Returns the name of the result.
    pub(super) fn node(&mut self, operator: &str, inputs: &[&str]) -> String {
        self.node_with(operator, inputs, &[])
    }

    /// Adds a node that has `attributes` and a single result. Returns the name of the result.
    pub(super) fn node_with(
        &mut self,
        operator: &str,
        inputs: &[&str],
        attributes: &[(&str, Attribute)],
    ) -> String {
        let name = format!("{operator}_{}", self.count);
        self.add(operator, inputs, &[&name], attributes);
        name
    }

    /// Adds a node that splits the result called `value` along its last dimension into parts with
    /// the given lengths. Returns the names of the parts.
    pub(super) fn split(&mut self, value: &str, lengths: &[usize]) -> Vec<String> {
        let number = self.count;
        let names: Vec<String> =
            (0..lengths.len()).map(|part| format!("Split_{number}_{part}")).collect();
        let lengths = self.integers(&lengths.iter().map(|&one| one as i64).collect::<Vec<_>>());
        let outputs: Vec<&str> = names.iter().map(String::as_str).collect();
        let axis = [("axis", Attribute::Integer(-1))];
        self.add("Split", &[value, &lengths], &outputs, &axis);
        names
    }

    fn add(
        &mut self,
        operator: &str,
        inputs: &[&str],
        outputs: &[&str],
        attributes: &[(&str, Attribute)],
    ) {
        let mut node = Message::default();
        inputs.iter().for_each(|input| node.bytes(1, input.as_bytes()));
        outputs.iter().for_each(|output| node.bytes(2, output.as_bytes()));
        node.bytes(3, format!("{operator}_{}", self.count).as_bytes());
        node.bytes(4, operator.as_bytes());
        for (name, value) in attributes {
            let mut one = Message::default();
            one.bytes(1, name.as_bytes());
            match value {
                Attribute::Float(value) => {
                    one.float(2, *value);
                    one.number(20, 1);
                }
                Attribute::Integer(value) => {
                    one.number(3, *value as u64);
                    one.number(20, 2);
                }
                Attribute::Integers(values) => {
                    values.iter().for_each(|&value| one.number(8, value as u64));
                    one.number(20, 7);
                }
            }
            node.bytes(5, &one.0);
        }
        self.nodes.bytes(1, &node.0);
        self.count += 1;
    }

    /// Adds an input of the model, and returns its name.
    pub(super) fn input(&mut self, name: &str, kind: Type, shape: &[Length]) -> String {
        self.ends.bytes(11, &value_info(name, kind, shape).0);
        name.to_owned()
    }

    /// Makes the result called `value` an output of the model with the name `name`.
    pub(super) fn output(&mut self, name: &str, value: &str, shape: &[Length]) {
        self.add("Identity", &[value], &[name], &[]);
        self.ends.bytes(12, &value_info(name, Type::Float, shape).0);
    }

    /// Adds a constant vector of integers. Returns the name of the tensor.
    pub(super) fn integers(&mut self, values: &[i64]) -> String {
        let name = values.iter().map(ToString::to_string).collect::<Vec<_>>().join("_");
        self.tensor(format!("integers_{name}"), vec![values.len()], Values::Integers(values.into()))
    }

    /// Adds a constant integer as a scalar. Returns the name of the tensor.
    pub(super) fn integer(&mut self, value: i64) -> String {
        self.tensor(format!("integer_{value}"), Vec::new(), Values::Integers(vec![value]))
    }

    /// Adds a constant floating-point number as a scalar. Returns the name of the tensor.
    pub(super) fn number(&mut self, value: f32) -> String {
        self.tensor(format!("number_{value:e}"), Vec::new(), Values::Floats(vec![value]))
    }

    /// Adds a constant tensor of floating-point numbers. Returns its name.
    pub(super) fn table(&mut self, name: &str, shape: Vec<usize>, values: Vec<f32>) -> String {
        self.tensor(name.to_owned(), shape, Values::Floats(values))
    }

    /// Adds a parameter as a tensor, without its first `skipped` rows. Returns the name of the
    /// tensor.
    pub(super) fn parameter(&mut self, parameter: &'a Parameter, skipped: usize) -> String {
        let mut shape = parameter.shape().to_vec();
        shape[0] -= skipped;
        let start = skipped * shape[1..].iter().product::<usize>();
        let values = Values::Part { parameter, start, is_transposed: false };
        self.tensor(parameter.name().to_owned(), shape, values)
    }

    /// Adds the transpose of a parameter, which must be a matrix. Returns the name of the tensor.
    pub(super) fn transposed(&mut self, parameter: &'a Parameter) -> String {
        let shape = parameter.shape().iter().rev().copied().collect();
        let values = Values::Part { parameter, start: 0, is_transposed: true };
        self.tensor(format!("{}.transposed", parameter.name()), shape, values)
    }

    /// Adds a tensor called `name`, unless there already is one of this name. Returns the name.
    fn tensor(&mut self, name: String, shape: Vec<usize>, values: Values<'a>) -> String {
        if self.names.insert(name.clone()) {
            self.tensors.push(Tensor { name: name.clone(), shape, values });
        }
        name
    }

    /// Writes the graph to the file `path`. If the file would have more than `most` bytes, all but
    /// small tensors are written to a second file.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(super) fn write(&self, path: &Path, most: u64) -> Result<()> {
        let weights: u64 = self.tensors.iter().map(Tensor::bytes).sum();
        let inside = weights + (self.nodes.0.len() + self.ends.0.len()) as u64;
        let data = (inside > most).then(|| with_suffix(path, DATA));
        let location = data.as_ref().and_then(|data| data.file_name()?.to_str());
        let (mut offset, mut heads) = (0, Vec::with_capacity(self.tensors.len()));
        for tensor in &self.tensors {
            let outside = location.filter(|_| tensor.bytes() > SMALL);
            heads.push((tensor.head(outside.map(|name| (name, offset))), outside.is_none()));
            if outside.is_some() {
                offset = (offset + tensor.bytes()).next_multiple_of(PAGE);
            }
        }
        if let Some(data) = &data {
            write_whole(data, |file| {
                for tensor in self.tensors.iter().filter(|tensor| tensor.bytes() > SMALL) {
                    file.write_all(&tensor.content()?)?;
                    let length = tensor.bytes();
                    let gap = length.next_multiple_of(PAGE) - length;
                    file.write_all(&vec![0; usize::try_from(gap)?])?;
                }
                Ok(())
            })?;
        }
        let size = |(tensor, (head, inside)): (&Tensor<'_>, &(Message, bool))| {
            head.0.len() as u64 + if *inside { tensor.bytes() } else { 0 }
        };
        let fields = self.tensors.iter().zip(&heads).map(|both| {
            let mut field = Message::default();
            field.announce(5, size(both));
            (both, field)
        });
        let fields: Vec<_> = fields.collect();
        let mut name = Message::default();
        name.bytes(2, b"model");
        let length: u64 =
            fields.iter().map(|(both, field)| field.0.len() as u64 + size(*both)).sum();
        let rest = self.nodes.0.len() + name.0.len() + self.ends.0.len();
        write_whole(path, |file| {
            let mut model = Message::default();
            model.number(1, IR_VERSION);
            let mut operators = Message::default();
            operators.number(2, OPERATORS);
            model.bytes(8, &operators.0);
            model.bytes(2, b"taper");
            model.announce(7, length + rest as u64);
            for part in [&model, &self.nodes, &name] {
                file.write_all(&part.0)?;
            }
            for ((tensor, (head, inside)), field) in fields {
                file.write_all(&field.0)?;
                file.write_all(&head.0)?;
                if *inside {
                    file.write_all(&tensor.content()?)?;
                }
            }
            Ok(file.write_all(&self.ends.0)?)
        })
    }
}

impl Tensor<'_> {
    /// Size of the values in bytes.
    fn bytes(&self) -> u64 {
        let width = if matches!(self.values, Values::Integers(_)) { 8 } else { 4 };
        self.shape.iter().product::<usize>() as u64 * width
    }

    /// Beginning of a message `TensorProto`: everything except the values. If the values are in a
    /// second file, `outside` has the name of that file and the offset of the values in bytes.
    /// Otherwise the values must be written directly after the beginning.
    fn head(&self, outside: Option<(&str, u64)>) -> Message {
        let kind = match self.values {
            Values::Integers(_) => Type::Integer,
            Values::Floats(_) | Values::Part { .. } => Type::Float,
        };
        let mut head = Message::default();
        self.shape.iter().for_each(|&length| head.number(1, length as u64));
        head.number(2, kind as u64);
        head.bytes(8, self.name.as_bytes());
        let Some((location, offset)) = outside else {
            head.announce(9, self.bytes());
            return head;
        };
        let place = [
            ("location", location.to_owned()),
            ("offset", offset.to_string()),
            ("length", self.bytes().to_string()),
        ];
        for (key, value) in place {
            let mut entry = Message::default();
            entry.bytes(1, key.as_bytes());
            entry.bytes(2, value.as_bytes());
            head.bytes(13, &entry.0);
        }
        head.number(14, 1);
        head
    }

    /// Values as bytes, little-endian.
    fn content(&self) -> Result<Vec<u8>> {
        let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Ok(match &self.values {
            Values::Integers(values) => {
                values.iter().flat_map(|value| value.to_le_bytes()).collect()
            }
            Values::Floats(values) => bytes(values),
            Values::Part { parameter, start, is_transposed } => {
                let whole = parameter.var().as_detached_tensor().flatten_all()?;
                let part = whole.narrow(0, *start, self.shape.iter().product())?;
                let values: Vec<f32> = part.to_dtype(DType::F32)?.to_vec1()?;
                match (is_transposed, parameter.shape().last()) {
                    (true, Some(&columns)) => bytes(&transposed(&values, columns)),
                    _ => bytes(&values),
                }
            }
        })
    }
}

/// Message `ValueInfoProto`, which describes an input or output of the model.
fn value_info(name: &str, kind: Type, shape: &[Length]) -> Message {
    let mut dimensions = Message::default();
    for length in shape {
        let mut one = Message::default();
        match length {
            Length::Fixed(length) => one.number(1, *length as u64),
            Length::Named(name) => one.bytes(2, name.as_bytes()),
        }
        dimensions.bytes(1, &one.0);
    }
    let (mut tensor, mut of_type, mut info) =
        (Message::default(), Message::default(), Message::default());
    tensor.number(1, kind as u64);
    tensor.bytes(2, &dimensions.0);
    of_type.bytes(1, &tensor.0);
    info.bytes(1, name.as_bytes());
    info.bytes(2, &of_type.0);
    info
}
