-- Statements over the catalog of a foreign database.

-- name: tables
SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY name;

-- name: columns
SELECT name FROM pragma_table_xinfo(:table);
