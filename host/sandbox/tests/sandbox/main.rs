//! The sandbox with real components: how they load, how calls end, what they may reach.

mod guest;
mod harness;

mod calls;
mod capabilities;
mod loading;
