//! RoCEv2 packets: checked views, small representations, ICRC, opcodes
