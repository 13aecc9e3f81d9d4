"""Writes the sources of a crate with many changes in them, each behind a switch that one run of the program turns on.

Not everything can be switched while a program runs: constants, constant functions, patterns, and what macros make of their arguments
stay as they are.
"""

import re

OPERATORS = {
    "==": ["!="], "!=": ["=="], "&&": ["||"], "||": ["&&"],
    "<": ["==", ">", "<="], ">": ["==", "<", ">="], "<=": [">"], ">=": ["<"],
    "+": ["-", "*"], "-": ["+", "/"], "*": ["+", "/"], "/": ["%", "*"], "%": ["/", "+"],
    "<<": [">>"], ">>": ["<<"], "&": ["|", "^"], "|": ["&", "^"], "^": ["|", "&"],
    "+=": ["-=", "*="], "-=": ["+=", "/="], "*=": ["+=", "/="], "/=": ["%=", "*="], "%=": ["/=", "+="],
    "|=": ["&=", "^="], "&=": ["|=", "^="], "^=": ["|=", "&="], "<<=": [">>="], ">>=": ["<<="],
}  # fmt: skip

# What a function returns instead, by the type in its signature.
VALUES = [
    (r"", ["()"]),
    (r"bool", ["true", "false"]),
    (r"[iu](8|16|32|64|128|size)|f(32|64)", ["0 as _", "1 as _"]),
    (r"String", ["String::new()", '"xyzzy".into()']),
    (r"&(?:'\w+ )?str", ['""', '"xyzzy"']),
    (r"Option<.*", ["None", "Some(Default::default())"]),
    (r"(\w+::)*Result<\(\).*", ["Ok(())"]),
    (r"(\w+::)*\w*Result<.*|fmt::Result", ["Ok(Default::default())"]),
    (r"Vec<.*", ["vec![]"]),
    (r"(?!impl\b|&|!|\*|\(|dyn\b).*", ["Default::default()"]),
]

# Nodes of the syntax tree that are copied as they are.
COPIED = {
    "const_item", "static_item", "macro_invocation", "macro_definition", "attribute_item", "inner_attribute_item", "use_declaration",
    "type_arguments", "const_block", "match_pattern", "line_comment", "block_comment", "enum_item", "struct_item",
}  # fmt: skip

# Code under these is not compiled for tests, or is a test.
NOT_FOR_TESTS = r"#\[(cfg\((all\(|any\()?(test|loom|shuttle|fuzzing|miri|windows|target_os = \"(windows|macos)\"|not\(target_os = \"linux\"\))|test\b)"

# Goes into the crate. `SWITCH_ON` is the number of the change to make; the numbers of the switches that a run passes go to the file
# `SWITCH_REACHED`.
SWITCH = """
#[allow(warnings, clippy::all)]
pub(crate) mod switch_ {
    use std::{env, fs::File, io::Write, sync::OnceLock, sync::atomic::{AtomicBool, Ordering}};
    static RUN: OnceLock<(usize, Option<File>)> = OnceLock::new();
    static SEEN: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];
    pub(crate) fn on(number: usize) -> bool {
        let run = RUN.get_or_init(|| {
            let on = env::var("SWITCH_ON").ok().and_then(|on| on.parse().ok()).unwrap_or(usize::MAX);
            let file = env::var_os("SWITCH_REACHED").and_then(|path| File::options().append(true).create(true).open(path).ok());
            (on, file)
        });
        if let Some(mut file) = run.1.as_ref() && !SEEN[number].swap(true, Ordering::Relaxed) {
            let _ = file.write_all(format!("{number}\\n").as_bytes());
        }
        run.0 == number
    }
}
"""


def switch(count):
    """The module that every switch calls."""
    return SWITCH.replace("COUNT", str(count))


class Source:
    """A file whose changes get the next numbers: their indices in `names`. Those whose names are in `dropped` do not compile, and are left out."""

    def __init__(self, parser, path, text, names, dropped):
        self.path, self.text, self.names, self.dropped = path, text, names, dropped
        self.tree = parser.parse(text)
        self.function = ""

    def switched(self):
        return self.emit(self.tree.root_node)

    def raw(self, node):
        """The text of a node in one line, without comments."""
        parts, at, stack = [], node.start_byte, [node]
        while stack:
            one = stack.pop()
            if one.type in ("line_comment", "block_comment"):
                parts.append(self.text[at : one.start_byte])
                at = one.end_byte
            else:
                stack.extend(reversed(one.children))
        parts.append(self.text[at : node.end_byte])
        return b" ".join(parts).decode().replace("\n", " ")

    def number(self, node, what, of=None):
        """Numbers a change; `None` if it does not compile."""
        line, column = node.start_point.row + 1, node.start_point.column + 1
        expression = " ".join(self.raw(of).split()) if of else ""
        expression = f" in `{expression[:77] + '...' if len(expression) > 80 else expression}`" if of else ""
        self.names.append(f"{self.path}:{line}:{column}: {self.function}: {what}{expression}")
        return None if self.names[-1] in self.dropped else len(self.names) - 1

    def ways(self, node, ways):
        """`node`'s expression, or one of `ways` (descriptions and texts) if its switch is on."""
        numbered = [(self.number(node, what, node), text) for what, text in ways]
        found = [f"\n/*M{number}*/ if crate::switch_::on({number}) {{ {text} }} else \n" for number, text in numbered if number is not None]
        inside = self.emit_children(node)
        if not found:
            return inside
        numbers = ",".join(str(number) for number, _ in numbered if number is not None)
        return f"/*<{numbers}*/({''.join(found)}{{ {inside} }})/*>*/"

    def emit(self, node):
        kind = node.type
        if kind in COPIED or kind.endswith(("_type", "_pattern")) or self.is_left_out(node):
            return self.text[node.start_byte : node.end_byte].decode()
        if kind == "function_item":
            return self.emit_function(node)
        if kind in ("binary_expression", "compound_assignment_expr"):
            left, sign, right = (node.child_by_field_name(field) for field in ("left", "operator", "right"))
            sign = sign.text.decode()
            ways = [(f"replace {sign} with {other}", f"{self.raw(left)} {other} {self.raw(right)}") for other in OPERATORS.get(sign, [])]
            return self.ways(node, ways)
        if kind == "unary_expression" and node.children[0].type in ("!", "-"):
            sign = node.children[0].type
            return self.ways(node, [(f"delete {sign}", self.raw(node.children[1]))])
        if kind == "match_arm":
            return self.emit_arm(node)
        return self.emit_children(node)

    def emit_children(self, node):
        parts, at = [], node.start_byte
        for child in node.children:
            parts.append(self.text[at : child.start_byte].decode())
            parts.append(self.emit(child))
            at = child.end_byte
        parts.append(self.text[at : node.end_byte].decode())
        return "".join(parts)

    def is_left_out(self, node):
        """Whether code is a test or not compiled for tests, what `Debug` prints, or a constant function."""
        before = node.prev_sibling
        while before is not None and before.type in ("attribute_item", "line_comment"):
            if re.match(NOT_FOR_TESTS, before.text.decode()):
                return True
            before = before.prev_sibling
        if node.type == "impl_item":
            trait = node.child_by_field_name("trait")
            return trait is not None and trait.text.decode().split("::")[-1] == "Debug"
        is_function = node.type == "function_item"
        return is_function and any(child.type == "function_modifiers" and b"const" in child.text for child in node.children)

    def emit_function(self, node):
        outer, owner = self.function, node.parent.parent
        name = node.child_by_field_name("name").text.decode()
        if owner is not None and owner.type == "impl_item":
            name = f"{owner.child_by_field_name('type').text.decode()}::{name}"
        self.function = name
        body, returned = node.child_by_field_name("body"), node.child_by_field_name("return_type")
        returned = "" if returned is None else returned.text.decode()
        start = self.text[node.start_byte : body.start_byte].decode()
        values = next((values for pattern, values in VALUES if re.fullmatch(pattern, returned, re.S)), [])
        head = ""
        own = self.raw(body)[1:-1].strip()
        for value in [value for value in values if value != own] if own else []:
            number = self.number(node, f"replace the body with {value}")
            if number is not None:
                head += f"\n/*M{number}*/ if crate::switch_::on({number}) {{ return {value}; }}\n"
        inside = self.emit_children(body)
        self.function = outer
        return f"{start}{{{head}{inside[1:]}"

    def emit_arm(self, node):
        pattern, value = node.child_by_field_name("pattern"), node.child_by_field_name("value")
        condition = pattern.child_by_field_name("condition")
        others = [arm.child_by_field_name("pattern").text for arm in node.parent.children if arm.type == "match_arm"]
        end = condition.prev_sibling.start_byte if condition else pattern.end_byte
        shape = self.text[pattern.start_byte : end].decode()
        checks = []
        if b"_" in others and shape.strip() != "_":
            number = self.number(node, f"delete the match arm {' '.join(shape.split())}")
            if number is not None:
                checks.append(f"\n/*M{number}*/ !crate::switch_::on({number})\n")
        if condition is not None and condition.type in ("let_condition", "let_chain"):
            checks.append(self.text[condition.start_byte : condition.end_byte].decode())
        elif condition is not None:
            always, never = (self.number(condition, f"replace the match guard with {it}", condition) for it in ("true", "false"))
            guard = f"({self.emit(condition)})"
            if always is not None:
                guard = f"(\n/*M{always}*/ crate::switch_::on({always}) ||\n {guard})"
            if never is not None:
                checks.append(f"\n/*M{never}*/ !crate::switch_::on({never})\n")
            checks.append(guard)
        guard = " && ".join(checks)
        before = self.text[node.start_byte : pattern.start_byte].decode()
        between = self.text[pattern.end_byte : value.start_byte].decode()
        after = self.text[value.end_byte : node.end_byte].decode()
        return f"{before}{shape}{' if ' + guard if guard else ''}{between}{self.emit(value)}{after}"


def at_fault(tree, message):
    """The changes that a compiler's error is about: those on its lines, or else the innermost ones around it."""
    primary, others, around = set(), set(), set()
    for span in message["spans"]:
        text = (tree / span["file_name"]).read_bytes()
        lines = text.decode().split("\n")[span["line_start"] - 1 : span["line_end"]]
        if len(lines) < 4:
            found = primary if span["is_primary"] else others
            found.update(int(number) for line in lines for number in re.findall(r"/\*M(\d+)\*/", line))
        if span["is_primary"]:
            open_ones = []
            for mark in re.finditer(rb"/\*<([\d,]+)\*/|/\*>\*/", text[: span["byte_start"]]):
                open_ones.append(mark[1]) if mark[1] else open_ones.pop()
            around.update(int(number) for number in b",".join(open_ones[-1:]).split(b",") if number)
    return primary or others or around
