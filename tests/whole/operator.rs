//! What an operator does to a running driver, with the commands of the program.

mod desk;
mod steering;
mod trials;
