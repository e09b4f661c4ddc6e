//! Benchmarks of Spanwire on the machine they run on
