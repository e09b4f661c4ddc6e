//! The RoCEv2 Reliable Connection engine: verbs semantics without I/O
