-- The metastore of a home that schema version 2 wrote.
CREATE TABLE millstream_answer_refs (
	seq BIGINT NOT NULL, 
	path TEXT NOT NULL, 
	PRIMARY KEY (seq, path)
);
CREATE TABLE millstream_answers (
	seq BIGINT NOT NULL, 
	stream TEXT NOT NULL, 
	committed_at BIGINT NOT NULL, 
	batch BIGINT, 
	path TEXT NOT NULL, 
	index_offset BIGINT NOT NULL, 
	index_length BIGINT NOT NULL, 
	rows BIGINT NOT NULL, 
	queries BIGINT NOT NULL, 
	PRIMARY KEY (seq)
);
INSERT INTO "millstream_answers" VALUES(1,'purchases',1794807349421325,0,'answers/purchases-0-96b6b1e9480a.answers',496,1448,5,1);
INSERT INTO "millstream_answers" VALUES(2,'purchases',1794807354482952,1,'answers/purchases-1-80b12b5f4934.answers',528,1448,11,1);
INSERT INTO "millstream_answers" VALUES(3,'purchases',1794807356150601,2,'answers/purchases-2-938c06ffe4b1.answers',496,1448,4,1);
INSERT INTO "millstream_answers" VALUES(4,'purchases',1794807357780014,3,'answers/purchases-3-b0e450df7767.answers',512,1448,7,1);
INSERT INTO "millstream_answers" VALUES(5,'purchases',1794807359870244,4,'answers/purchases-4-8e08633b297a.answers',512,1448,8,1);
INSERT INTO "millstream_answers" VALUES(6,'purchases',1794807361567676,5,'answers/purchases-5-9b56fd6d08b0.answers',488,1448,3,1);
INSERT INTO "millstream_answers" VALUES(7,'purchases',1794807363111868,6,'answers/purchases-6-dad4a90a0a53.answers',520,1448,9,1);
INSERT INTO "millstream_answers" VALUES(8,'purchases',1794807364705470,7,'answers/purchases-7-485d33623d9d.answers',504,1448,6,1);
INSERT INTO "millstream_answers" VALUES(9,'purchases',1794807366088659,8,'answers/purchases-8-73b9c6ec21f0.answers',488,1448,3,1);
INSERT INTO "millstream_answers" VALUES(10,'purchases',1794807367213906,NULL,'answers/purchases-fire-0ada1125db9a.answers',1600,1560,21,3);
INSERT INTO "millstream_answers" VALUES(11,'purchases',1794807367657606,9,'answers/purchases-9-7a594facb989.answers',512,1448,7,1);
CREATE TABLE millstream_bucket_files (
	path TEXT NOT NULL, 
	stream TEXT NOT NULL, 
	batch BIGINT NOT NULL, 
	watermark BIGINT, 
	buckets TEXT NOT NULL, 
	PRIMARY KEY (path)
);
INSERT INTO "millstream_bucket_files" VALUES('buckets/purchases/6-fb78ec3ded1e.bucket','purchases',6,1767225603098000,'[["g-1",2,1767225604000000,1767225605000000,816,872,8]]');
INSERT INTO "millstream_bucket_files" VALUES('buckets/purchases/7-dba5bb1e8ae5.bucket','purchases',7,1767225603698000,'[["g-1",2,1767225604000000,1767225605000000,0,872,8]]');
INSERT INTO "millstream_bucket_files" VALUES('buckets/purchases/8-f51c1b728924.bucket','purchases',8,1767225604298000,'[["g-1",2,1767225604000000,1767225605000000,0,816,8],["g-1",2,1767225605000000,1767225606000000,816,816,8]]');
INSERT INTO "millstream_bucket_files" VALUES('buckets/purchases/6-compact-6c8eb8f93cf9.bucket','purchases',6,1767225603098000,'[["g-1",2,1767225603000000,1767225604000000,0,816,8]]');
INSERT INTO "millstream_bucket_files" VALUES('buckets/purchases/9-bb11653abad7.bucket','purchases',9,1767225604898000,'[["g-1",2,1767225605000000,1767225606000000,0,816,8]]');
CREATE TABLE millstream_closings (
	stream TEXT NOT NULL, 
	batch BIGINT NOT NULL, 
	step BIGINT NOT NULL, 
	watermark BIGINT NOT NULL, 
	PRIMARY KEY (stream, batch, step)
);
INSERT INTO "millstream_closings" VALUES('purchases',0,0,1767225600098000);
INSERT INTO "millstream_closings" VALUES('purchases',1,0,1767225600698000);
INSERT INTO "millstream_closings" VALUES('purchases',2,0,1767225601298000);
INSERT INTO "millstream_closings" VALUES('purchases',3,0,1767225601898000);
INSERT INTO "millstream_closings" VALUES('purchases',4,0,1767225602498000);
INSERT INTO "millstream_closings" VALUES('purchases',5,0,1767225603098000);
INSERT INTO "millstream_closings" VALUES('purchases',6,0,1767225603698000);
INSERT INTO "millstream_closings" VALUES('purchases',7,0,1767225604298000);
INSERT INTO "millstream_closings" VALUES('purchases',8,0,1767225604898000);
INSERT INTO "millstream_closings" VALUES('purchases',9,0,1767225605498000);
CREATE TABLE millstream_cursors (
	name TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE millstream_dead_letters (
	path TEXT NOT NULL, 
	stream TEXT NOT NULL, 
	batch BIGINT NOT NULL, 
	PRIMARY KEY (path)
);
CREATE TABLE millstream_definitions (
	id TEXT NOT NULL, 
	definition TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "millstream_definitions" VALUES('revenue','{"@":"LogicalQuery","sql":"SELECT gem_pack, count(*) AS n, sum(price) AS revenue FROM purchases GROUP BY gem_pack, window(time, ''2 seconds'', ''1 second'')","stream":"purchases","where":null,"window":{"@":"WindowSpec","size":2000000,"slide":1000000},"keys":[{"@":"Column","name":"gem_pack","type":{"@":"DataType","kind":"integer"}}],"aggregates":[{"@":"Aggregate","function":"count","argument":null,"type":{"@":"DataType","kind":"long"}},{"@":"Aggregate","function":"sum","argument":{"@":"Column","name":"price","type":{"@":"DataType","kind":"decimal","precision":10,"scale":2}},"type":{"@":"DataType","kind":"decimal","precision":20,"scale":2}}],"having":null,"outputs":[{"@":"Output","name":"gem_pack","expression":{"@":"Column","name":"#k0","type":{"@":"DataType","kind":"integer"}}},{"@":"Output","name":"n","expression":{"@":"Column","name":"#a0","type":{"@":"DataType","kind":"long"}}},{"@":"Output","name":"revenue","expression":{"@":"Column","name":"#a1","type":{"@":"DataType","kind":"decimal","precision":20,"scale":2}}}]}');
INSERT INTO "millstream_definitions" VALUES('most','{"@":"LogicalQuery","sql":"SELECT gem_pack, max(price) AS most FROM purchases WHERE price > 20 GROUP BY gem_pack, window(time, ''3 seconds'')","stream":"purchases","where":{"@":"Call","op":"GreaterThan","args":[{"@":"Column","name":"price","type":{"@":"DataType","kind":"decimal","precision":10,"scale":2}},{"@":"Call","op":"Cast","args":[{"@":"Call","op":"Cast","args":[{"@":"Literal","value":20,"type":{"@":"DataType","kind":"integer"}}],"type":{"@":"DataType","kind":"decimal","precision":2}}],"type":{"@":"DataType","kind":"decimal","precision":10,"scale":2}}],"type":{"@":"DataType","kind":"boolean"}},"window":{"@":"WindowSpec","size":3000000,"slide":3000000},"keys":[{"@":"Column","name":"gem_pack","type":{"@":"DataType","kind":"integer"}}],"aggregates":[{"@":"Aggregate","function":"max","argument":{"@":"Column","name":"price","type":{"@":"DataType","kind":"decimal","precision":10,"scale":2}},"type":{"@":"DataType","kind":"decimal","precision":10,"scale":2}}],"having":null,"outputs":[{"@":"Output","name":"gem_pack","expression":{"@":"Column","name":"#k0","type":{"@":"DataType","kind":"integer"}}},{"@":"Output","name":"most","expression":{"@":"Column","name":"#a0","type":{"@":"DataType","kind":"decimal","precision":10,"scale":2}}}]}');
INSERT INTO "millstream_definitions" VALUES('three','{"@":"LogicalQuery","sql":"SELECT user_id, price FROM purchases WHERE user_id = 3","stream":"purchases","where":{"@":"Call","op":"EqualTo","args":[{"@":"Column","name":"user_id","type":{"@":"DataType","kind":"long"}},{"@":"Call","op":"Cast","args":[{"@":"Literal","value":3,"type":{"@":"DataType","kind":"integer"}}],"type":{"@":"DataType","kind":"long"}}],"type":{"@":"DataType","kind":"boolean"}},"window":null,"keys":[],"aggregates":[],"having":null,"outputs":[{"@":"Output","name":"user_id","expression":{"@":"Column","name":"user_id","type":{"@":"DataType","kind":"long"}}},{"@":"Output","name":"price","expression":{"@":"Column","name":"price","type":{"@":"DataType","kind":"decimal","precision":10,"scale":2}}}]}');
INSERT INTO "millstream_definitions" VALUES('gone','{"@":"LogicalQuery","sql":"SELECT count(*) AS n FROM purchases GROUP BY window(time, ''1 second'')","stream":"purchases","where":null,"window":{"@":"WindowSpec","size":1000000,"slide":1000000},"keys":[],"aggregates":[{"@":"Aggregate","function":"count","argument":null,"type":{"@":"DataType","kind":"long"}}],"having":null,"outputs":[{"@":"Output","name":"n","expression":{"@":"Column","name":"#a0","type":{"@":"DataType","kind":"long"}}}]}');
CREATE TABLE millstream_engine (
	id INTEGER NOT NULL, 
	schema_version BIGINT NOT NULL, 
	incarnation BIGINT NOT NULL, 
	holder TEXT NOT NULL, 
	opened_at BIGINT NOT NULL, 
	epoch BIGINT NOT NULL, 
	answer_seq BIGINT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "millstream_engine" VALUES(1,2,1,'vm process 12748',1794807282110924,5,11);
CREATE TABLE millstream_epochs (
	number BIGINT NOT NULL, 
	sealed_at BIGINT NOT NULL, 
	cuts TEXT NOT NULL, 
	PRIMARY KEY (number)
);
INSERT INTO "millstream_epochs" VALUES(1,1794807312880345,'{"purchases": [0, null, null]}');
INSERT INTO "millstream_epochs" VALUES(2,1794807314258601,'{"purchases": [0, null, null]}');
INSERT INTO "millstream_epochs" VALUES(3,1794807315901560,'{"purchases": [0, null, null]}');
INSERT INTO "millstream_epochs" VALUES(4,1794807317656013,'{"purchases": [0, null, null]}');
INSERT INTO "millstream_epochs" VALUES(5,1794807357893847,'{"purchases": [4, 1767225601898000, 1767225602398000]}');
CREATE TABLE millstream_group_versions (
	stream TEXT NOT NULL, 
	group_name TEXT NOT NULL, 
	version BIGINT NOT NULL, 
	epoch BIGINT NOT NULL, 
	until BIGINT NOT NULL, 
	path TEXT NOT NULL, 
	queries BIGINT NOT NULL, 
	classes BIGINT NOT NULL, 
	retired BOOLEAN NOT NULL, 
	PRIMARY KEY (stream, group_name, version)
);
INSERT INTO "millstream_group_versions" VALUES('purchases','g-1',2,2,4611686018427387904,'groups/g-1-2-e96b2210d72b.json',2,0,0);
INSERT INTO "millstream_group_versions" VALUES('purchases','g-2',1,3,4611686018427387904,'groups/g-2-1-8ec40b6e243c.json',1,0,0);
INSERT INTO "millstream_group_versions" VALUES('purchases','g-3',1,4,5,'groups/g-3-1-d400bc143b62.json',1,0,0);
INSERT INTO "millstream_group_versions" VALUES('purchases','g-3',2,5,4611686018427387904,'groups/g-3-2-6cea18321d74.json',0,0,1);
CREATE TABLE millstream_joins (
	name TEXT NOT NULL, 
	stream TEXT NOT NULL, 
	PRIMARY KEY (name, stream)
);
CREATE TABLE millstream_legs (
	"query" TEXT NOT NULL, 
	leg BIGINT NOT NULL, 
	stream TEXT NOT NULL, 
	group_name TEXT NOT NULL, 
	slot BIGINT NOT NULL, 
	first_batch BIGINT NOT NULL, 
	last_batch BIGINT, 
	fired_to BIGINT, 
	partial_until BIGINT, 
	closes_at BIGINT, 
	PRIMARY KEY ("query", leg)
);
CREATE TABLE millstream_plans (
	stream TEXT NOT NULL, 
	batch BIGINT NOT NULL, 
	epoch BIGINT NOT NULL, 
	watermark BIGINT, 
	clock BIGINT NOT NULL, 
	offsets TEXT NOT NULL, 
	PRIMARY KEY (stream, batch)
);
INSERT INTO "millstream_plans" VALUES('purchases',0,4,NULL,1794807342848949,'{"row": 300} aad1b1518491874c');
INSERT INTO "millstream_plans" VALUES('purchases',1,4,1767225600098000,1794807351236656,'{"row": 600} 51bab158c646e687');
INSERT INTO "millstream_plans" VALUES('purchases',2,4,1767225600698000,1794807355594115,'{"row": 900} 0f2969270933886c');
INSERT INTO "millstream_plans" VALUES('purchases',3,4,1767225601298000,1794807357126528,'{"row": 1200} e7ef89088873eab1');
INSERT INTO "millstream_plans" VALUES('purchases',4,5,1767225601898000,1794807358956669,'{"row": 1500} 91d9d5edc7439eaa');
INSERT INTO "millstream_plans" VALUES('purchases',5,5,1767225602498000,1794807361175345,'{"row": 1800} 62678bd7cbfd5ac8');
INSERT INTO "millstream_plans" VALUES('purchases',6,5,1767225603098000,1794807362604837,'{"row": 2100} 63eb93531ed359a7');
INSERT INTO "millstream_plans" VALUES('purchases',7,5,1767225603698000,1794807364145916,'{"row": 2400} bb9407b727027b86');
INSERT INTO "millstream_plans" VALUES('purchases',8,5,1767225604298000,1794807365750997,'{"row": 2700} f508f55e8245d04c');
INSERT INTO "millstream_plans" VALUES('purchases',9,5,1767225604898000,1794807367383898,'{"row": 3000} 4e034b7d6a0eb280');
CREATE TABLE millstream_queries (
	id TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	client_key TEXT, 
	stream TEXT NOT NULL, 
	windowed BOOLEAN NOT NULL, 
	group_name TEXT NOT NULL, 
	slot BIGINT NOT NULL, 
	epoch BIGINT NOT NULL, 
	created_at BIGINT NOT NULL, 
	first_batch BIGINT NOT NULL, 
	last_batch BIGINT, 
	fired_to BIGINT, 
	partial_until BIGINT, 
	closes_at BIGINT, 
	state TEXT NOT NULL, 
	deleted_epoch BIGINT, 
	ended_at BIGINT, 
	reason TEXT, 
	windows BIGINT NOT NULL, 
	answer_rows BIGINT NOT NULL, 
	late_rows BIGINT NOT NULL, 
	failures BIGINT NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (owner, client_key)
);
INSERT INTO "millstream_queries" VALUES('revenue','ann','k1','purchases',1,'g-1',0,1,1794807312880345,0,NULL,1767225604898000,-4611686018427387903,NULL,'running',NULL,NULL,NULL,4,16,0,0);
INSERT INTO "millstream_queries" VALUES('most','bob',NULL,'purchases',1,'g-1',1,2,1794807314258601,0,NULL,1767225604898000,-4611686018427387903,NULL,'running',NULL,NULL,NULL,1,4,0,0);
INSERT INTO "millstream_queries" VALUES('three','bob',NULL,'purchases',0,'g-2',0,3,1794807315901560,0,NULL,-4611686018427387903,-4611686018427387903,NULL,'running',NULL,NULL,NULL,0,63,0,0);
INSERT INTO "millstream_queries" VALUES('gone','bob',NULL,'purchases',1,'g-3',0,4,1794807317656013,0,3,1767225601898000,-4611686018427387903,1767225601898000,'deleted',5,1794807367213906,NULL,1,1,0,0);
CREATE TABLE millstream_statistics (
	stream TEXT NOT NULL, 
	figures TEXT NOT NULL, 
	PRIMARY KEY (stream)
);
INSERT INTO "millstream_statistics" VALUES('purchases','{"@":"Figures","rows":300.0,"bytes":10800.0,"delays":[0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,300.0],"moments":{"@dict":[["price",{"@":"Moments","count":300.0,"total":14592.32,"squares":954221.3671999999}]]},"groups":{"@dict":[["g-1",{"@":"GroupFigures","version":2,"keys":4,"rows":[62.0,238.0]}],["g-3",{"@":"GroupFigures","version":1,"keys":1,"rows":[300.0]}]]}}');
CREATE TABLE millstream_streams (
	name TEXT NOT NULL, 
	position BIGINT NOT NULL, 
	definition TEXT NOT NULL, 
	lateness BIGINT NOT NULL, 
	watermark BIGINT, 
	max_time BIGINT, 
	planned BIGINT NOT NULL, 
	committed BIGINT NOT NULL, 
	rows BIGINT NOT NULL, 
	late_rows BIGINT NOT NULL, 
	rejected_rows BIGINT NOT NULL, 
	batches BIGINT NOT NULL, 
	bytes BIGINT NOT NULL, 
	closed_all BOOLEAN NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "millstream_streams" VALUES('purchases',0,'{"@":"Stream","name":"purchases","fields":[{"@":"Field","name":"user_id","type":{"@":"DataType","kind":"long"}},{"@":"Field","name":"gem_pack","type":{"@":"DataType","kind":"integer"}},{"@":"Field","name":"price","type":{"@":"DataType","kind":"decimal","precision":10,"scale":2}},{"@":"Field","name":"time","type":{"@":"DataType","kind":"timestamp"}}],"time":"time","lateness":500000,"source":[["began","1794807298848754"],["density","500"],["disorder","0"],["gem_packs","4"],["max_rows_per_batch","300"],["rate","500"],["rows","4500"],["seed","7"],["source","gaming"],["start","1767225600000000"],["table","purchases"],["users","20"]]}',500000,1767225605498000,1767225605998000,9,9,3000,0,0,10,108000,0);
CREATE INDEX millstream_queries_state ON millstream_queries (stream, state);
CREATE INDEX millstream_queries_cut ON millstream_queries (stream, first_batch);
CREATE INDEX millstream_joins_stream ON millstream_joins (stream);
CREATE INDEX millstream_legs_cut ON millstream_legs (stream, first_batch);
CREATE INDEX millstream_legs_end ON millstream_legs (stream, last_batch);
CREATE INDEX millstream_group_versions_until ON millstream_group_versions (stream, until);
CREATE INDEX millstream_bucket_files_stream ON millstream_bucket_files (stream, batch);
CREATE INDEX millstream_answers_stream ON millstream_answers (stream, seq);
CREATE INDEX millstream_answer_refs_path ON millstream_answer_refs (path);
