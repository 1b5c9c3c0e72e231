use super::TreeNode;
use crate::Deadline;

/// The reason why a patch operation at a path fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, derive_more::Display)]
pub(crate) enum PatchProblem {
    #[display("the parent of the path does not exist")]
    NoParent,
    #[display("the path does not exist")]
    Nothing,
    #[display("the path leads through a value that is neither an object nor an array")]
    NotAContainer,
    #[display("the path is not an index of the array")]
    NoIndex,
    #[display("the object would be nested too deeply")]
    TooDeep,
    #[display("the `copy` operations copy too much")]
    Copies,
    #[display("the operations read and move too much")]
    Work,
    #[display("the deadline passed")]
    Deadline,
}

#[derive(Debug)]
pub(crate) struct PatchBudget {
    /// The units of work that the patch may still do. A unit is a byte that is read, or an element that is moved.
    pub(super) work: usize,
    work_until_check: usize,
    copies: usize,
    deadline: Option<Deadline>,
}

impl PatchBudget {
    /// The units of work between two checks of the deadline. They take about a millisecond.
    const CHECK_INTERVAL: usize = 1 << 20;
    /// The fixed cost of a patch operation, in units of work. The bytes that the operation reads, and the elements that
    /// it moves, are charged in addition.
    pub(crate) const OPERATION_COST: usize = 128;
    /// The units of work for building a tree from one byte of text. Reading the byte costs one unit.
    pub(super) const TREE_COST_PER_BYTE: usize = 4;

    pub(crate) fn new(work: usize, copies: usize, deadline: Option<Deadline>) -> Self {
        Self {
            work,
            work_until_check: Self::CHECK_INTERVAL,
            copies,
            deadline,
        }
    }

    pub(super) fn charge(&mut self, units: usize) -> Result<(), PatchProblem> {
        self.work = self.work.checked_sub(units).ok_or(PatchProblem::Work)?;
        if let Some(remaining) = self.work_until_check.checked_sub(units) {
            self.work_until_check = remaining;
            return Ok(());
        }
        self.work_until_check = Self::CHECK_INTERVAL;
        // The patch has been computing for about a millisecond, so this thread lets other threads run.
        std::thread::yield_now();
        match self.deadline {
            Some(deadline) if deadline.has_passed() => Err(PatchProblem::Deadline),
            _ => Ok(()),
        }
    }

    pub(crate) fn charge_operation(&mut self) -> Result<(), PatchProblem> {
        self.charge(Self::OPERATION_COST)
    }

    pub(crate) fn copy<'a>(&mut self, value: &TreeNode<'a>) -> Result<TreeNode<'a>, PatchProblem> {
        let size = value.size(self.copies).ok_or(PatchProblem::Copies)?;
        self.charge(size)?;
        self.copies -= size;
        Ok(value.clone())
    }
}
