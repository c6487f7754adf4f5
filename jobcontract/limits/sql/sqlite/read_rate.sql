SELECT (SELECT next_at FROM {rates} WHERE name = ?), julianday('now') * 86400 - 210866760000
