//! Process machinery.
