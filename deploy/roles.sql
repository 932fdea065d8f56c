-- Roles for a store in PostgreSQL, each with the rights that it needs and no others. Run this as the owner of the
-- database, after the tables were made (the first rows make them), and again after an upgrade:
--   psql postgresql://owner@host/ads -f deploy/roles.sql
-- Then give a role to each login:
--   GRANT mcnet_serve TO service; GRANT mcnet_learn TO nightly; GRANT mcnet_migrate TO release;
DO $$
DECLARE
  one text;
BEGIN
  FOREACH one IN ARRAY ARRAY['mcnet_serve', 'mcnet_learn', 'mcnet_migrate'] LOOP
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = one) THEN
      EXECUTE format('CREATE ROLE %I NOLOGIN', one);
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), one);
  END LOOP;
  -- Migrating: the owner of a table alone may change it.
  EXECUTE format('GRANT mcnet_migrate TO %I', current_user);
  EXECUTE format('GRANT CREATE ON SCHEMA %I TO mcnet_migrate', current_schema());
  FOREACH one IN ARRAY ARRAY['heads', 'entries', 'keys', 'versions', 'history', 'runs', 'checkpoints', 'documents',
                             'mcnet_schema'] LOOP
    EXECUTE format('ALTER TABLE %I OWNER TO mcnet_migrate', one);
  END LOOP;
END
$$;

-- Serving: read everything, add feedback, and move the pointer when a request with the token asks for it.
GRANT SELECT ON heads, entries, keys, versions, history, runs, checkpoints, documents, mcnet_schema TO mcnet_serve;
GRANT INSERT ON entries, history TO mcnet_serve;
GRANT UPDATE ON heads TO mcnet_serve;
GRANT USAGE ON SEQUENCE entries_id_seq, history_id_seq TO mcnet_serve;

-- Learning: everything but changes of the tables themselves.
GRANT SELECT, INSERT, UPDATE, DELETE
  ON heads, entries, keys, versions, history, runs, checkpoints, documents TO mcnet_learn;
GRANT SELECT ON mcnet_schema TO mcnet_learn;
GRANT USAGE ON SEQUENCE heads_id_seq, entries_id_seq, history_id_seq, runs_id_seq TO mcnet_learn;
