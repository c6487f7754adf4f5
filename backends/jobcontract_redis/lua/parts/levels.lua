-- One priority's share of the scores of the ready jobs: the milliseconds until the year 2109.
local LEVEL = 4398046511104 -- 2^42
