//! The spanwire command: demo, perf and lab
