//! What is computed with arrays.

/// An element-wise operation of two arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOperation {
    /// `left + right`.
    Add,
    /// `left - right`.
    Subtract,
    /// `left * right`.
    Multiply,
}

impl BinaryOperation {
    /// All operations.
    pub const ALL: [Self; 3] = [Self::Add, Self::Subtract, Self::Multiply];

    /// The operation's name, which names its kernel too.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Subtract => "subtract",
            Self::Multiply => "multiply",
        }
    }
}

/// How many elements become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Their sum; 0 if there are none.
    Sum,
    /// The smallest, as by [`f32::min`]: NaNs count only if there are no other elements.
    Minimum,
    /// The largest, as by [`f32::max`]; the same holds for NaNs.
    Maximum,
}

impl Reduction {
    /// All reductions.
    pub const ALL: [Self; 3] = [Self::Sum, Self::Minimum, Self::Maximum];

    /// The reduction's name, which names its kernel too.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Minimum => "minimum",
            Self::Maximum => "maximum",
        }
    }
}
