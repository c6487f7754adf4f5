-- A client says goodbye. Parameter: client.
DELETE FROM {move_clients} WHERE client = %s
