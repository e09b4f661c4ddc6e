//! What SRC does that RC does not.

use super::*;
