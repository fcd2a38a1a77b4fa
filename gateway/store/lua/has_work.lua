-- ARGV: conversation
-- Answers whether a turn of it, or what it says, is still to come.
local conversation = argument()
return (has_work('turn', conversation) or has_work('out', conversation)) and 1 or 0
