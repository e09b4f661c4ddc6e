//! Memory that another party may write: copied in and out, never borrowed
