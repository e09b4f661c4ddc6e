-- Wireshark and TShark: SR, Spanwire's second wire mode (docs/protocol/sr.md, "Packets").
--
-- Wireshark's own RoCE dissector decodes Ethernet, IP, UDP and the BTH and stops there, because the
-- opcodes 0xC0 to 0xC3 are manufacturer-defined. This post-dissector continues after the BTH: every
-- field has a filter name (spanwire.sr.psn, spanwire.sr.ack.next, ...).

local sr = Proto("spanwire_sr", "Spanwire Selective Repeat")

local KINDS = {
  [0] = "SEND", "WRITE", "READ request", "READ response", "FETCH_ADD", "CMP_SWAP", "atomic response",
}
local REASONS = { [0] = "count", "time", "gap", "asked for", "limit moved", "refused", "block",
  "no receive request" }
local REFUSED = 5
local SCHEMES = { [1] = "P and Q", "Cauchy" }
local FORMATS = { [0] = "full", [1] = "compact" }
local NEAR_KINDS = { [0] = "pseudo-ACK", [1] = "near telemetry" }
local REPORTS = { [0] = "short", "settled", "recovered" }
-- The NAK codes of the InfiniBand specification.
local CODES = {
  [0] = "PSN sequence error", "invalid request", "remote access error", "remote operational error",
  "invalid RD request",
}

local f = {
  version = ProtoField.uint8("spanwire.sr.version", "Version", base.DEC, nil, 0xf0),
  kind = ProtoField.uint8("spanwire.sr.kind", "Kind", base.DEC, KINDS, 0x0f),
  psn = ProtoField.uint32("spanwire.sr.psn", "PSN, all 32 bits", base.DEC),
  presence = ProtoField.uint16("spanwire.sr.presence", "Presence", base.HEX),
  first = ProtoField.bool("spanwire.sr.first", "First segment", 8, nil, 0x80),
  last = ProtoField.bool("spanwire.sr.last", "Last segment", 8, nil, 0x40),
  retransmission = ProtoField.bool("spanwire.sr.retransmission", "Retransmission", 8, nil, 0x20),
  path = ProtoField.uint16("spanwire.sr.path", "Path", base.DEC),
  sent = ProtoField.uint64("spanwire.sr.sent", "Time sent, ps", base.DEC),
  message = ProtoField.uint32("spanwire.sr.message", "Message", base.DEC),
  offset = ProtoField.uint32("spanwire.sr.offset", "Offset in the message", base.DEC),
  reth_va = ProtoField.uint64("spanwire.sr.reth.va", "Virtual address", base.HEX),
  reth_rkey = ProtoField.uint32("spanwire.sr.reth.rkey", "rkey", base.HEX),
  reth_len = ProtoField.uint32("spanwire.sr.reth.len", "DMA length", base.DEC),
  atomic_va = ProtoField.uint64("spanwire.sr.atomic.va", "Virtual address", base.HEX),
  atomic_rkey = ProtoField.uint32("spanwire.sr.atomic.rkey", "rkey", base.HEX),
  atomic_operand = ProtoField.uint64("spanwire.sr.atomic.swap_or_add", "Swap or add", base.DEC),
  atomic_compare = ProtoField.uint64("spanwire.sr.atomic.compare", "Compare", base.DEC),
  imm = ProtoField.uint32("spanwire.sr.imm", "Immediate", base.HEX),
  ieth = ProtoField.uint32("spanwire.sr.ieth", "rkey to invalidate", base.HEX),
  receive = ProtoField.uint32("spanwire.sr.receive", "Receive request", base.DEC),
  answers = ProtoField.uint32("spanwire.sr.answers", "Answers message", base.DEC),
  original = ProtoField.uint64("spanwire.sr.original", "Original value", base.DEC),
  block_index = ProtoField.uint8("spanwire.sr.block.index", "Place in the block", base.DEC),
  block_data = ProtoField.uint8("spanwire.sr.block.data", "Data packets of the block", base.DEC),
  block_parity = ProtoField.uint8("spanwire.sr.block.parity", "Parity packets of the block", base.DEC),
  block_scheme = ProtoField.uint8("spanwire.sr.block.scheme", "Scheme", base.DEC, SCHEMES),
  block_bytes = ProtoField.uint32("spanwire.sr.block.bytes", "Bytes of data in the block", base.DEC),
  block_first = ProtoField.uint32("spanwire.sr.block.first", "First PSN of the block", base.DEC),
  source_qpn = ProtoField.uint24("spanwire.sr.source_qpn", "QPN of the sender", base.HEX),
  data_len = ProtoField.uint32("spanwire.sr.data_len", "Bytes of data", base.DEC),
  again = ProtoField.framenum("spanwire.sr.again", "PSN sent before in", base.NONE, frametype.RETRANS_PREV),

  ack_words = ProtoField.uint8("spanwire.sr.ack.words", "Bitmap words", base.DEC, nil, 0x0f),
  ack_next = ProtoField.uint32("spanwire.sr.ack.next", "Next: lowest PSN missing", base.DEC),
  ack_presence = ProtoField.uint16("spanwire.sr.ack.presence", "Presence", base.HEX),
  ack_newest = ProtoField.uint32("spanwire.sr.ack.newest", "Newest: PSN of the last arrival", base.DEC),
  ack_path = ProtoField.uint16("spanwire.sr.ack.path", "Path of the newest", base.DEC),
  ack_reason = ProtoField.uint8("spanwire.sr.ack.reason", "Reason", base.DEC, REASONS),
  ack_hop_limit = ProtoField.uint8("spanwire.sr.ack.hop_limit", "Hop limit of the newest", base.DEC),
  ack_echo = ProtoField.uint64("spanwire.sr.ack.echo", "Echo: time the newest was sent, ps", base.DEC),
  ack_hold = ProtoField.uint32("spanwire.sr.ack.hold", "Hold, ns", base.DEC),
  ack_delay = ProtoField.uint32("spanwire.sr.ack.delay", "Receive delay, ns", base.DEC),
  ack_rx_pkts = ProtoField.uint32("spanwire.sr.ack.rx_pkts", "Packets received", base.DEC),
  ack_ce_pkts = ProtoField.uint32("spanwire.sr.ack.ce_pkts", "Packets marked CE", base.DEC),
  ack_rx_bytes = ProtoField.uint64("spanwire.sr.ack.rx_bytes", "Bytes received", base.DEC),
  ack_ce_bytes = ProtoField.uint64("spanwire.sr.ack.ce_bytes", "Bytes marked CE", base.DEC),
  ack_psn_limit = ProtoField.uint32("spanwire.sr.ack.psn_limit", "PSN limit", base.DEC),
  ack_receive_limit = ProtoField.uint32("spanwire.sr.ack.receive_limit", "Receive limit", base.DEC),
  word = ProtoField.bytes("spanwire.sr.ack.word", "Bitmap word"),
  word_base = ProtoField.uint32("spanwire.sr.ack.word.base", "Base PSN", base.DEC),
  word_bits = ProtoField.uint64("spanwire.sr.ack.word.bits", "Arrived", base.HEX),
  arrived = ProtoField.uint32("spanwire.sr.ack.arrived", "Arrived beyond next, as reported", base.DEC),
  missing = ProtoField.uint32("spanwire.sr.ack.missing", "Missing below those, in the reported words", base.DEC),
  refused_psn = ProtoField.uint32("spanwire.sr.ack.refused.psn", "Refused PSN", base.DEC),
  refused_code = ProtoField.uint8("spanwire.sr.ack.refused.code", "NAK code", base.DEC, CODES),
  int_hops = ProtoField.uint8("spanwire.sr.ack.int.hops", "Hops of the newest", base.DEC),
  int_format = ProtoField.uint8("spanwire.sr.ack.int.format", "Format of the records", base.DEC, FORMATS),
  int_hop = ProtoField.bytes("spanwire.sr.ack.int.hop", "Hop"),
  int_time = ProtoField.uint64("spanwire.sr.ack.int.time", "Time, ps", base.DEC),
  int_tx_bytes = ProtoField.uint64("spanwire.sr.ack.int.tx_bytes", "Bytes sent", base.DEC),
  int_queue_bytes = ProtoField.uint32("spanwire.sr.ack.int.queue_bytes", "Bytes in the queue", base.DEC),
  int_rate = ProtoField.uint32("spanwire.sr.ack.int.rate", "Rate of the port, Mbit/s", base.DEC),
  int_wrapped_time = ProtoField.uint32("spanwire.sr.ack.int.wrapped_time", "Time, in 16 ns, wrapped", base.DEC),
  int_wrapped_tx = ProtoField.uint32("spanwire.sr.ack.int.wrapped_tx", "Sent, in 128 bytes, wrapped", base.DEC),
  credit = ProtoField.uint32("spanwire.sr.ack.credit", "Credit", base.DEC),
  credit_rate = ProtoField.uint32("spanwire.sr.ack.credit.rate", "Credit rate, kbit/s", base.DEC),
  suggested_rate = ProtoField.uint32("spanwire.sr.ack.credit.suggested", "Suggested rate, kbit/s", base.DEC),
  blocks = ProtoField.uint8("spanwire.sr.ack.blocks", "Block reports", base.DEC),
  report = ProtoField.bytes("spanwire.sr.ack.block", "Block report"),
  report_first = ProtoField.uint32("spanwire.sr.ack.block.first", "First PSN of the block", base.DEC),
  report_kind = ProtoField.uint8("spanwire.sr.ack.block.kind", "Kind of the report", base.DEC, REPORTS),
  report_data = ProtoField.uint8("spanwire.sr.ack.block.data", "Data packets of the block", base.DEC),
  report_bits = ProtoField.uint64("spanwire.sr.ack.block.bits", "Packets", base.HEX),
  marks = ProtoField.uint64("spanwire.sr.ack.marks", "Marked CE, the newest first", base.HEX),
  near_kind = ProtoField.uint8("spanwire.sr.near.kind", "Kind of feedback", base.DEC, NEAR_KINDS, 0x0f),
  near_psn = ProtoField.uint32("spanwire.sr.near.psn", "PSN of the packet", base.DEC),
  near_hop_limit = ProtoField.uint8("spanwire.sr.near.hop_limit", "Hop limit at the switch", base.DEC),
  near_echo = ProtoField.uint64("spanwire.sr.near.echo", "Echo: time the packet was sent, ps", base.DEC),
  echo_frame = ProtoField.framenum("spanwire.sr.ack.echo_frame", "Echoes frame", base.NONE, frametype.ACK),
  rtt = ProtoField.relative_time("spanwire.sr.ack.rtt", "Since that frame, in this capture"),
}
local fields = {}
for _, field in pairs(f) do
  fields[#fields + 1] = field
end
sr.fields = fields

local e = {
  version = ProtoExpert.new("spanwire.sr.expert.version", "A version that is not known", expert.group.UNDECODED, expert.severity.WARN),
  feature = ProtoExpert.new("spanwire.sr.expert.feature", "A part that is not known", expert.group.UNDECODED, expert.severity.WARN),
  kind = ProtoExpert.new("spanwire.sr.expert.kind", "A kind or reason that there is not", expert.group.PROTOCOL, expert.severity.ERROR),
  short = ProtoExpert.new("spanwire.sr.expert.short", "The header does not end in this packet", expert.group.MALFORMED, expert.severity.ERROR),
  cut = ProtoExpert.new("spanwire.sr.expert.cut", "The capture ends before the header does", expert.group.UNDECODED, expert.severity.NOTE),
  base = ProtoExpert.new("spanwire.sr.expert.base", "A bitmap word that begins within a word", expert.group.PROTOCOL, expert.severity.ERROR),
  rest = ProtoExpert.new("spanwire.sr.expert.rest", "Bytes behind an acknowledgement", expert.group.PROTOCOL, expert.severity.ERROR),
  reserved = ProtoExpert.new("spanwire.sr.expert.reserved", "A reserved field is not zero", expert.group.PROTOCOL, expert.severity.NOTE),
  again = ProtoExpert.new("spanwire.sr.expert.again", "Sent again", expert.group.SEQUENCE, expert.severity.NOTE),
  refused = ProtoExpert.new("spanwire.sr.expert.refused", "A request is refused", expert.group.RESPONSE_CODE, expert.severity.WARN),
}
local experts = {}
for _, expert_info in pairs(e) do
  experts[#experts + 1] = expert_info
end
sr.experts = experts

local VERSION = 1
local DATA, ACK, PARITY, NEAR = 0xc0, 0xc1, 0xc2, 0xc3
local UDP_LEN, BTH_LEN, ICRC_LEN = 8, 12, 4
local DATA_LEN, ACK_LEN, WORD_LEN, REFUSAL_LEN = 24, 60, 12, 8
local LIST_LEN, NEAR_LEN = 4, 12
local INT, HOPS_MAX = 1, 16
local CREDIT, CREDIT_LEN = 2, 12
local BLOCKS, REPORT_LEN, REPORTS_MAX = 4, 16, 4
local MARKS, MARKS_LEN = 8, 8
local BLOCK, BLOCK_PKTS_MAX = 0x100, 64

-- The optional parts of data, in the order of the presence bits: bytes, and the offset of each
-- field.
local PARTS = {
  { 16, { f.reth_va, 0, 8 }, { f.reth_rkey, 8, 4 }, { f.reth_len, 12, 4 } },
  { 28, { f.atomic_va, 0, 8 }, { f.atomic_rkey, 8, 4 }, { f.atomic_operand, 12, 8 }, { f.atomic_compare, 20, 8 } },
  { 4, { f.imm, 0, 4 } },
  { 4, { f.ieth, 0, 4 } },
  { 4, { f.receive, 0, 4 } },
  { 4, { f.answers, 0, 4 } },
  { 8, { f.original, 0, 8 } },
  {}, -- reserved
  { 4, { f.block_index, 0, 1 }, { f.block_data, 1, 1 }, { f.block_parity, 2, 1 }, { f.block_scheme, 3, 1 } },
  { 4, { f.block_bytes, 0, 4 } },
  { 4, { f.source_qpn, 0, 3 } },
}
local KNOWN = 0x077f

local opcode_of = Field.new("infiniband.bth.opcode")

-- Frames seen of each stream: the frame of each PSN, and the frame and time of each send timestamp.
local psns, times, again_in, echo_of = {}, {}, {}, {}
function sr.init()
  psns, times, again_in, echo_of = {}, {}, {}, {}
end

-- The tree of one packet and the bytes of its header; a read beyond them is an error that ends the
-- dissection.
local Reader = {}
Reader.__index = Reader

function Reader:take(len)
  if self.at + len > self.stop then
    self.tree:add_proto_expert_info(self.stop < self.said and e.cut or e.short)
    return nil
  end
  local range = self.buffer(self.at, len)
  self.at = self.at + len
  return range
end

function Reader:reserved(range)
  for i = 0, range:len() - 1 do
    if range(i, 1):uint() ~= 0 then
      self.tree:add_tvb_expert_info(e.reserved, range)
      return
    end
  end
end

-- Adds a field, with expert information unless its value `is_valid`; returns `is_valid`.
local function add_checked(tree, field, range, is_valid, expert_info)
  local item = tree:add(field, range)
  if not is_valid then
    item:add_proto_expert_info(expert_info)
  end
  return is_valid
end

local function version_is_known(reader, range)
  return add_checked(reader.tree, f.version, range, range:bitfield(0, 4) == VERSION, e.version)
end

-- The presence bits; nil if there are others than `known`.
local function add_presence(reader, field, range, known)
  local presence = range:uint()
  local is_known = bit.band(presence, bit.bnot(known)) == 0
  return add_checked(reader.tree, field, range, is_known, e.feature) and presence or nil
end

local function psn_of(reader, range)
  return range:uint() * 0x1000000 + reader.psn_low
end

-- A stream is identified by the destination of its packets. An ACK reports on packets sent to its
-- source, so both directions are matched by addresses alone; the timestamps match exactly.
local function stream(from, to)
  return tostring(from) .. ">" .. tostring(to)
end

local function note_data(reader, pinfo, psn, sent)
  local key = stream(pinfo.src, pinfo.dst)
  if not pinfo.visited then
    local numbered = key .. ":" .. reader.qp .. ":" .. psn
    again_in[pinfo.number] = psns[numbered]
    psns[numbered] = pinfo.number
    times[key .. "@" .. tostring(sent)] = { pinfo.number, pinfo.abs_ts }
  end
  if again_in[pinfo.number] then
    local item = reader.tree:add(f.again, again_in[pinfo.number])
    item:set_generated()
    item:add_proto_expert_info(e.again)
  end
end

local function note_echo(reader, pinfo, echo)
  if not pinfo.visited then
    echo_of[pinfo.number] = times[stream(pinfo.dst, pinfo.src) .. "@" .. tostring(echo)]
  end
  local seen = echo_of[pinfo.number]
  if seen then
    reader.tree:add(f.echo_frame, seen[1]):set_generated()
    local since = pinfo.abs_ts - seen[2]
    local seconds = math.floor(since)
    local time = NSTime.new(seconds, math.floor((since - seconds) * 1e9 + 0.5))
    reader.tree:add(f.rtt, time):set_generated()
  end
end

-- A packet's place in its block; false if there is no such place.
local function add_block(reader, range, psn)
  local index, data, parity = range(0, 1):uint(), range(1, 1):uint(), range(2, 1):uint()
  if data == 0 or parity == 0 or data + parity > BLOCK_PKTS_MAX or index >= data + parity then
    reader.tree:add_tvb_expert_info(e.kind, range)
    return false
  end
  reader.tree:add(f.block_first, (psn - index) % 0x100000000):set_generated()
  return true
end

local function dissect_data(reader, pinfo)
  local tree, fixed = reader.tree, reader:take(DATA_LEN)
  if not fixed or not version_is_known(reader, fixed(0, 1)) then
    return "SR data?"
  end
  local kind = fixed:bitfield(4, 4)
  if not add_checked(tree, f.kind, fixed(0, 1), KINDS[kind] ~= nil, e.kind) then
    return "SR data?"
  end
  local psn = psn_of(reader, fixed(1, 1))
  tree:add(f.psn, fixed(1, 1), psn)
  local presence = add_presence(reader, f.presence, fixed(2, 2), KNOWN)
  if not presence then
    return "SR " .. KINDS[kind]
  end
  tree:add(f.first, fixed(4, 1))
  tree:add(f.last, fixed(4, 1))
  tree:add(f.retransmission, fixed(4, 1))
  if bit.band(fixed(4, 1):uint(), 0x1f) ~= 0 then
    tree:add_tvb_expert_info(e.reserved, fixed(4, 1))
  end
  reader:reserved(fixed(5, 1))
  tree:add(f.path, fixed(6, 2))
  tree:add(f.sent, fixed(8, 8))
  tree:add(f.message, fixed(16, 4))
  tree:add(f.offset, fixed(20, 4))
  for i, part in ipairs(PARTS) do
    if bit.band(presence, bit.lshift(1, i - 1)) ~= 0 then
      local range = reader:take(part[1])
      if not range then
        return "SR " .. KINDS[kind]
      end
      for j = 2, #part do
        local field, at, len = part[j][1], part[j][2], part[j][3]
        tree:add(field, range(at, len))
      end
      if bit.lshift(1, i - 1) == BLOCK and not add_block(reader, range, psn) then
        return "SR " .. KINDS[kind]
      end
    end
  end
  local bytes = reader.said - reader.at
  if bytes >= 0 then
    tree:add(f.data_len, bytes):set_generated()
  end
  note_data(reader, pinfo, psn, fixed(8, 8):uint64())
  local what = reader.is_parity and "parity of " .. KINDS[kind] or KINDS[kind]
  local info = string.format("SR %s PSN %d message %d", what, psn, fixed(16, 4):uint())
  return bytes > 0 and string.format("%s +%d, %d bytes", info, fixed(20, 4):uint(), bytes) or info
end

-- Bits of a word, base first. Appends each packet at or above `next` to `told`: how far it is
-- ahead of `next`, and whether it has arrived.
local function add_word(reader, range, next, told)
  local tree = reader.tree:add(f.word, range)
  local base_psn = range(0, 4):uint()
  add_checked(tree, f.word_base, range(0, 4), base_psn % 64 == 0, e.base)
  tree:add(f.word_bits, range(4, 8))
  for i = 0, 63 do
    -- The most significant bit is first on the wire; bit i is base + i.
    local is_set = range(4, 8):bitfield(63 - i, 1) == 1
    local ahead = (base_psn + i - next) % 0x100000000
    if ahead < 0x80000000 then
      told[#told + 1] = { ahead, is_set }
    end
  end
end

local function add_counts(reader, told)
  local arrived, missing, highest = 0, 0, -1
  for _, packet in ipairs(told) do
    if packet[2] then
      arrived = arrived + 1
      highest = math.max(highest, packet[1])
    end
  end
  for _, packet in ipairs(told) do
    if not packet[2] and packet[1] < highest then
      missing = missing + 1
    end
  end
  reader.tree:add(f.arrived, arrived):set_generated()
  reader.tree:add(f.missing, missing):set_generated()
  return missing
end

-- `count` entries of the same length. `add` receives each entry's bytes. False if the packet is
-- truncated or `add` returns false.
local function add_entries(reader, count, entry_len, add)
  for _ = 1, count do
    local range = reader:take(entry_len)
    if not range or add(reader, range) == false then
      return false
    end
  end
  return true
end

-- A list after a head with the number of its entries, which `field` shows and `most` limits.
-- False if the head is truncated or [add_entries] returns false.
local function add_list(reader, field, most, entry_len, add)
  local head = reader:take(LIST_LEN)
  if not head then
    return false
  end
  local count = head(0, 1):uint()
  if not add_checked(reader.tree, field, head(0, 1), count >= 1 and count <= most, e.kind) then
    return false
  end
  reader:reserved(head(1, 3))
  return add_entries(reader, count, entry_len, add)
end

-- The full telemetry record of a switch that an acknowledgement echoes.
local function add_hop(reader, range)
  local hop = reader.tree:add(f.int_hop, range)
  hop:add(f.int_time, range(0, 8))
  hop:add(f.int_tx_bytes, range(8, 8))
  hop:add(f.int_queue_bytes, range(16, 4))
  hop:add(f.int_rate, range(20, 4))
end

-- A decade of the rates of compact records, in hundredths: ISO 3, series R40.
local SERIES = {
  100, 106, 112, 118, 125, 132, 140, 150, 160, 170, 180, 190, 200, 212, 224, 236, 250, 265, 280,
  300, 315, 335, 355, 375, 400, 425, 450, 475, 500, 530, 560, 600, 630, 670, 710, 750, 800, 850,
  900, 950,
}

-- The same, compact.
local function add_compact_hop(reader, range)
  local hop, code = reader.tree:add(f.int_hop, range), range(0, 1):uint()
  hop:add(f.int_wrapped_time, range(1, 3), range:bitfield(8, 20))
  hop:add(f.int_wrapped_tx, range(3, 3), range:bitfield(28, 20))
  hop:add(f.int_queue_bytes, range(6, 2), range(6, 2):uint() * 128)
  local rate = 0
  if code > 0 then
    local decade = math.floor((code - 1) / #SERIES)
    rate = math.floor(SERIES[(code - 1) % #SERIES + 1] * 10 ^ decade / 100)
  end
  hop:add(f.int_rate, range(0, 1), rate)
end

-- The length and the function of a record, by format.
local RECORDS = { [0] = { 24, add_hop }, [1] = { 8, add_compact_hop } }

-- The echo of telemetry; false if it is truncated or invalid.
local function add_hops(reader)
  local head = reader:take(LIST_LEN)
  if not head then
    return false
  end
  local count, record = head(0, 1):uint(), RECORDS[head(1, 1):uint()]
  if not add_checked(reader.tree, f.int_hops, head(0, 1), count >= 1 and count <= HOPS_MAX, e.kind)
      or not add_checked(reader.tree, f.int_format, head(1, 1), record ~= nil, e.kind) then
    return false
  end
  reader:reserved(head(2, 2))
  return add_entries(reader, count, record[1], record[2])
end

-- An acknowledgement's report on a block; false if it is invalid.
local function add_report(reader, range)
  local report = reader.tree:add(f.report, range)
  report:add(f.report_first, range(0, 4))
  local kind, data = range(4, 1), range(5, 1)
  local is_block = data:uint() >= 1 and data:uint() < BLOCK_PKTS_MAX
  if not add_checked(report, f.report_kind, kind, REPORTS[kind:uint()] ~= nil, e.kind)
      or not add_checked(report, f.report_data, data, is_block, e.kind) then
    return false
  end
  reader:reserved(range(6, 2))
  report:add(f.report_bits, range(8, 8))
end

local function dissect_ack(reader, pinfo)
  local tree, fixed = reader.tree, reader:take(ACK_LEN)
  if not fixed or not version_is_known(reader, fixed(0, 1)) then
    return "SR ACK?"
  end
  tree:add(f.ack_words, fixed(0, 1))
  local next = psn_of(reader, fixed(1, 1))
  tree:add(f.ack_next, fixed(1, 1), next)
  local presence = add_presence(reader, f.ack_presence, fixed(2, 2), INT + CREDIT + BLOCKS + MARKS)
  if not presence then
    return "SR ACK"
  end
  tree:add(f.ack_newest, fixed(4, 4))
  tree:add(f.ack_path, fixed(8, 2))
  local reason = fixed(10, 1):uint()
  if not add_checked(tree, f.ack_reason, fixed(10, 1), REASONS[reason] ~= nil, e.kind) then
    return "SR ACK"
  end
  tree:add(f.ack_hop_limit, fixed(11, 1))
  tree:add(f.ack_echo, fixed(12, 8))
  tree:add(f.ack_hold, fixed(20, 4))
  tree:add(f.ack_delay, fixed(24, 4))
  tree:add(f.ack_rx_pkts, fixed(28, 4))
  tree:add(f.ack_ce_pkts, fixed(32, 4))
  tree:add(f.ack_rx_bytes, fixed(36, 8))
  tree:add(f.ack_ce_bytes, fixed(44, 8))
  tree:add(f.ack_psn_limit, fixed(52, 4))
  tree:add(f.ack_receive_limit, fixed(56, 4))
  local told = {}
  local function add_to_told(_, range)
    add_word(reader, range, next, told)
  end
  if not add_entries(reader, fixed:bitfield(4, 4), WORD_LEN, add_to_told) then
    return "SR ACK"
  end
  local missing = add_counts(reader, told)
  local info = string.format("SR ACK %s, next %d", REASONS[reason], next)
  if missing > 0 then
    info = string.format("%s, %d missing", info, missing)
  end
  if reason == REFUSED then
    local range = reader:take(REFUSAL_LEN)
    if not range then
      return info
    end
    tree:add(f.refused_psn, range(0, 4))
    local item = tree:add(f.refused_code, range(4, 1))
    item:add_proto_expert_info(CODES[range(4, 1):uint()] and e.refused or e.kind)
    reader:reserved(range(5, 3))
    info = string.format("%s, PSN %d refused", info, range(0, 4):uint())
  end
  local has_hops, has_blocks = bit.band(presence, INT) ~= 0, bit.band(presence, BLOCKS) ~= 0
  if has_hops and not add_hops(reader) then
    return info
  end
  if bit.band(presence, CREDIT) ~= 0 then
    local range = reader:take(CREDIT_LEN)
    if not range then
      return info
    end
    tree:add(f.credit, range(0, 4))
    tree:add(f.credit_rate, range(4, 4))
    tree:add(f.suggested_rate, range(8, 4))
  end
  if has_blocks and not add_list(reader, f.blocks, REPORTS_MAX, REPORT_LEN, add_report) then
    return info
  end
  if bit.band(presence, MARKS) ~= 0 then
    local range = reader:take(MARKS_LEN)
    if not range then
      return info
    end
    tree:add(f.marks, range)
  end
  if reader.at < reader.stop then
    tree:add_tvb_expert_info(e.rest, reader.buffer(reader.at, reader.stop - reader.at))
  end
  note_echo(reader, pinfo, fixed(12, 8):uint64())
  return info
end

local function dissect_near(reader, pinfo)
  local tree, fixed = reader.tree, reader:take(NEAR_LEN)
  if not fixed or not version_is_known(reader, fixed(0, 1)) then
    return "SR feedback?"
  end
  local kind = fixed:bitfield(4, 4)
  if not add_checked(tree, f.near_kind, fixed(0, 1), NEAR_KINDS[kind] ~= nil, e.kind) then
    return "SR feedback?"
  end
  local psn = psn_of(reader, fixed(1, 1))
  tree:add(f.near_psn, fixed(1, 1), psn)
  tree:add(f.near_hop_limit, fixed(2, 1))
  reader:reserved(fixed(3, 1))
  tree:add(f.near_echo, fixed(4, 8))
  if kind == 1 and not add_hops(reader) then
    return "SR feedback?"
  end
  if reader.at < reader.stop then
    tree:add_tvb_expert_info(e.rest, reader.buffer(reader.at, reader.stop - reader.at))
  end
  note_echo(reader, pinfo, fixed(4, 8):uint64())
  return string.format("SR %s, PSN %d", NEAR_KINDS[kind], psn)
end

local DISSECTORS = {
  [DATA] = dissect_data, [ACK] = dissect_ack, [PARITY] = dissect_data, [NEAR] = dissect_near,
}

function sr.dissector(buffer, pinfo, tree)
  local opcode = opcode_of()
  if not opcode or not DISSECTORS[opcode.value] then
    return
  end
  local bth = opcode.offset
  if bth < UDP_LEN or bth + BTH_LEN > buffer:len() then
    return
  end
  -- The UDP length determines the end of the packet, which may be beyond the captured bytes.
  local pad = buffer(bth + 1, 1):bitfield(2, 2)
  local said = bth - UDP_LEN + buffer(bth - 4, 2):uint() - ICRC_LEN - pad
  local stop = math.min(said, buffer:len())
  local at = bth + BTH_LEN
  if stop < at then
    return
  end
  local reader = setmetatable({
    buffer = buffer,
    at = at,
    stop = stop,
    said = said,
    psn_low = buffer(bth + 9, 3):uint(),
    qp = buffer(bth + 5, 3):uint(),
    is_parity = opcode.value == PARITY,
    tree = tree:add(sr, buffer(at, stop - at)),
  }, Reader)
  local info = DISSECTORS[opcode.value](reader, pinfo)
  reader.tree:append_text(", " .. info)
  pinfo.cols.protocol = "SR"
  pinfo.cols.info = info .. string.format(" QP=0x%06x", reader.qp)
end

register_postdissector(sr)
