-- Those who were there lately. Parameter: seconds.
SELECT client, name, epoch, claims, {now} - seen_at, holds FROM {move_clients} WHERE seen_at >= {now} - %s ORDER BY name, client
