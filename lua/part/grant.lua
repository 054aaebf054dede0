-- The entries of one grant, by its id: an entry holds a limited number of permits, and a larger grant has
-- several, its parts. Twin: src/store/memory/log.rs.
--
-- Reads  call, MAX_ENTRY_PERMITS
-- Sets   in s: id, tail  the common bytes of all parts, and the number of the first

-- Reads them from an entry of the grant, or its first 17 bytes.
local function read_id(s, entry)
  s.id, s.tail = string.sub(entry, 2, 15), struct.unpack('<I2', entry, 16)
end

-- The number of the part that a member is; nil if it is not a part of the grant.
local function part_number(s, member)
  if #member == 21 and string.byte(member, 1) == 16 and string.sub(member, 2, 15) == s.id then
    local part = bit.bxor(struct.unpack('<I2', member, 16), s.tail)
    return part < 32768 and part or nil
  end
end

-- Writes entries that hold `total` permits: parts of a grant, or of a reservation if `mask` is 16384, or debts
-- if it is 32768 or more.
local function write_entries(s, total, mask, date)
  local k = 0
  while total > 0 do
    local part = math.min(total, MAX_ENTRY_PERMITS)
    call('ZADD', s.log_key, date, struct.pack('<Bc0I2I4', 16, s.id, bit.bxor(s.tail, mask + k), part))
    total, k = total - part, k + 1
  end
end
