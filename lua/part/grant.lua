-- The entries of one grant, by its id: an entry holds a limited number of permits, and a larger grant has
-- several, its parts. Twin: src/store/memory/grant.rs.
--
-- Reads  call, permits_of, with_permits (part/entry.lua); log_key (part/config.lua);
--        MAX_ENTRY_PERMITS
-- Sets   what is declared here
local id, tail -- what all parts have in common, and the number of the first

-- Reads them from an entry of the grant, or its first 17 bytes.
local function read_id(entry)
  id, tail = string.sub(entry, 2, 15), struct.unpack('<I2', entry, 16)
end

-- Which part of the grant a member is; nil if it is not a part of it.
local function part_number(member)
  if #member == 21 and string.byte(member, 1) == 16 and string.sub(member, 2, 15) == id then
    local part = bit.bxor(struct.unpack('<I2', member, 16), tail)
    return part < 32768 and part or nil
  end
end

-- Entries that hold `total` permits: parts of a grant, of a reservation if `mask` is 16384, or debts if it
-- is 32768.
local function entries_of(total, mask)
  local list, k = {}, 0
  while total > 0 do
    local part = math.min(total, MAX_ENTRY_PERMITS)
    list[k + 1] = struct.pack('<Bc0I2I4', 16, id, bit.bxor(tail, mask + k), part)
    total, k = total - part, k + 1
  end
  return list
end

-- Takes permits out of the parts of a grant of this date, the last part first.
local function give_back(parts, permits, date)
  table.sort(parts, function(a, b)
    local m, n = part_number(a), part_number(b)
    return m > n or m == n and permits_of(a) > permits_of(b)
  end)
  for i = 1, #parts do
    local p = permits_of(parts[i])
    local taken = math.min(p, permits)
    if taken > 0 then
      permits = permits - taken
      call('ZREM', log_key, parts[i])
      if taken < p then
        call('ZADD', log_key, date, with_permits(parts[i], p - taken))
      end
    end
  end
end
