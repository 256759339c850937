-- setup.lua: prepares Lua for scripts as the server does, and returns the function that runs one.
-- KEYS  none
-- ARGV  call, call_without_raising, as_text, describe: functions of the bridge
-- replies  a function of a script, its KEYS and its ARGV
local call, call_without_raising, as_text, describe = ...
local pcall, xpcall, type, string_find = pcall, xpcall, type, string.find

redis = { call = call, pcall = call_without_raising }

function redis.status_reply(text)
  return { ok = text }
end

-- If there are several words, the first one is the code.
function redis.error_reply(text)
  if text:sub(1, 1) == '-' then
    text = text:sub(2)
  end
  return { err = string_find(text, ' ', 1, true) and text or 'ERR ' .. text }
end

-- A script that catches an error gets its text, even if the error was raised as a table.
local function caught(ok, ...)
  if ok then
    return true, ...
  end
  return false, as_text(...)
end

function _G.pcall(...)
  return caught(pcall(...))
end

for _, name in ipairs({ 'collectgarbage', 'dofile', 'load', 'loadfile', 'newproxy', 'print' }) do
  _G[name] = nil
end
math.random, math.randomseed = nil, nil

KEYS, ARGV = {}, {}

setmetatable(_G, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
  __newindex = function()
    error('Attempt to modify a readonly table', 2)
  end,
})

return function(script, keys, argv)
  KEYS, ARGV = keys, argv
  return xpcall(script, describe)
end
