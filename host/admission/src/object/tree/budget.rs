use super::Node;
use crate::Deadline;

/// The reason why an operation at a path fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, derive_more::Display)]
pub(crate) enum Problem {
    /// A parent does not exist.
    #[display("the parent of the path does not exist")]
    NoParent,
    /// The path does not exist, although its parent does.
    #[display("the path does not exist")]
    Nothing,
    /// The path leads through a value that is neither an object nor an array.
    #[display("the path leads through a value that is neither an object nor an array")]
    NotAContainer,
    /// The path has an array index that is invalid or out of bounds.
    #[display("the path is not an index of the array")]
    NoIndex,
    /// The result would be nested too deeply.
    #[display("the object would be nested too deeply")]
    TooDeep,
    /// The limit of copied bytes is exceeded.
    #[display("the `copy` operations copy too much")]
    Copies,
    /// The limit of work is exceeded.
    #[display("the operations read and move too much")]
    Work,
    #[display("the deadline passed")]
    Deadline,
}

/// The work that a patch may still do.
#[derive(Debug)]
pub(crate) struct Budget {
    /// The remaining units of work: bytes that are read, and elements that are moved.
    pub(super) work: usize,
    unchecked: usize,
    copies: usize,
    deadline: Option<Deadline>,
}

impl Budget {
    /// The units of work between two checks of the clock, about a millisecond's worth.
    const STRIDE: usize = 1 << 20;
    /// The cost of an operation, in addition to the bytes that it reads and the elements that it moves.
    pub(crate) const OPERATION: usize = 128;
    /// The cost of building a tree from one byte of text, compared to reading the byte.
    pub(super) const TREE: usize = 4;

    pub(crate) fn new(work: usize, copies: usize, deadline: Option<Deadline>) -> Self {
        Self {
            work,
            unchecked: Self::STRIDE,
            copies,
            deadline,
        }
    }

    pub(super) fn charge(&mut self, units: usize) -> Result<(), Problem> {
        self.work = self.work.checked_sub(units).ok_or(Problem::Work)?;
        if let Some(left) = self.unchecked.checked_sub(units) {
            self.unchecked = left;
            return Ok(());
        }
        self.unchecked = Self::STRIDE;
        // The thread has used a millisecond, so other threads get a turn.
        std::thread::yield_now();
        match self.deadline {
            Some(deadline) if deadline.has_passed() => Err(Problem::Deadline),
            _ => Ok(()),
        }
    }

    /// Charges for another operation.
    pub(crate) fn begin(&mut self) -> Result<(), Problem> {
        self.charge(Self::OPERATION)
    }

    pub(crate) fn copy<'a>(&mut self, value: &Node<'a>) -> Result<Node<'a>, Problem> {
        let size = value.size(self.copies).ok_or(Problem::Copies)?;
        self.charge(size)?;
        self.copies -= size;
        Ok(value.clone())
    }
}
