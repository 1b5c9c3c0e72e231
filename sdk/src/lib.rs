//! Write an admission plugin: one struct, typed settings, one function.
