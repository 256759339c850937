-- The clock of all leases, in microseconds after 1970. This is not now(), the beginning of the
-- transaction, because a step may have waited for others since.
CREATE OR REPLACE FUNCTION leasehold.clock() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;
