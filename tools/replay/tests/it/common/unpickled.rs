//! A second reader of pickles, so that what the import says is compared with the file and not with itself.
//! (`serde_pickle` takes lists that several entries share for recursive ones.)

use std::collections::HashMap;

use serde_json::Value;

#[derive(Clone)]
enum Node {
    Leaf(Value),
    List(Vec<usize>),
    Dict(Vec<usize>),
}

/// Returns the value of a pickle of plain data, as Python's protocol 4 writes it.
pub(crate) fn unpickled(mut bytes: &[u8]) -> Value {
    let mut nodes: Vec<Node> = Vec::new();
    let (mut stack, mut marks, mut memo) = (Vec::new(), Vec::new(), HashMap::new());
    let mut take = |count: usize| {
        let (taken, rest) = bytes.split_at(count);
        bytes = rest;
        taken
    };
    let number = |bytes: &[u8]| {
        let mut number = [0; 8];
        number[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(number)
    };
    loop {
        let opcode = take(1)[0];
        let mut push = |node| {
            stack.push(nodes.len());
            nodes.push(node);
        };
        match opcode {
            0x80 => drop(take(1)),
            0x95 => drop(take(8)),
            b'(' => marks.push(stack.len()),
            b']' => push(Node::List(Vec::new())),
            b'}' => push(Node::Dict(Vec::new())),
            0x89 => push(Node::Leaf(false.into())),
            b'G' => push(Node::Leaf(format!("{:?}", take(8)).into())),
            b'K' => push(Node::Leaf(number(take(1)).into())),
            b'M' => push(Node::Leaf(number(take(2)).into())),
            b'J' => {
                let number = i32::from_le_bytes(take(4).try_into().unwrap());
                push(Node::Leaf(number.into()));
            }
            0x8a => {
                let length = take(1)[0].into();
                push(Node::Leaf(number(take(length)).into()));
            }
            0x8c => {
                let length = take(1)[0].into();
                let text = std::str::from_utf8(take(length)).unwrap();
                push(Node::Leaf(text.into()));
            }
            0x94 => drop(memo.insert(memo.len() as u64, *stack.last().unwrap())),
            b'h' => stack.push(memo[&number(take(1))]),
            b'j' => stack.push(memo[&number(take(4))]),
            b'a' | b'e' | b'u' => {
                let from = if opcode == b'a' {
                    stack.len() - 1
                } else {
                    marks.pop().unwrap()
                };
                let items = stack.split_off(from);
                match &mut nodes[*stack.last().unwrap()] {
                    Node::List(own) | Node::Dict(own) => own.extend(items),
                    Node::Leaf(_) => panic!("items for {opcode:#x}"),
                }
            }
            0x86 => {
                let items = stack.split_off(stack.len() - 2);
                stack.push(nodes.len());
                nodes.push(Node::List(items));
            }
            b'.' => return value(&nodes, stack.pop().unwrap()),
            _ => panic!("opcode {opcode:#x}"),
        }
    }
}

fn value(nodes: &[Node], of: usize) -> Value {
    match &nodes[of] {
        Node::Leaf(value) => value.clone(),
        Node::List(items) => items.iter().map(|item| value(nodes, *item)).collect(),
        Node::Dict(items) => {
            let pairs = items.chunks(2).map(|pair| {
                let key = value(nodes, pair[0]);
                (key.as_str().unwrap().to_owned(), value(nodes, pair[1]))
            });
            Value::Object(pairs.collect())
        }
    }
}
