-- Log members: a length byte (16; 8 in Redisson before 3.21.0), that many bytes of id, and the permits as 32
-- bits, little-endian. Twin: src/wire/entry.rs.

-- The first bytes of the entries of a pause.
local PAUSE = '\16\167\82\241\0\0\0\0\0pause\0'

-- The permits of a member; nil if it does not come from Redisson 3.17.0 or later.
local function permits_of(member)
  local size, first = #member, string.byte(member, 1)
  if size == 21 and first == 16 or size == 13 and first == 8 then
    local a, b, c, d = string.byte(member, size - 3, size)
    return a + b * 256 + c * 65536 + d * 16777216
  end
end

-- The member with other permits.
local function with_permits(member, permits)
  return string.sub(member, 1, -5) .. struct.pack('<I4', permits)
end
