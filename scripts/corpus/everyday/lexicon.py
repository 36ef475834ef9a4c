"""The lexicon, one table per word class.

Every table is plain text, one entry per line, columns separated by spaces; an underscore stands
for a space inside a column. `|` inside a Chinese verb marks where an aspect particle goes:
`踢|足球` gives 踢了足球 and 踢过足球.
"""

# Subject, object, possessive, Chinese, agreement (first, third, plural; "you" agrees as a plural).
PRONOUNS = """
I    me   my    我    first
you  you  your  你    plural
he   him  his   他    third
she  her  her   她    third
we   us   our   我们  plural
they them their 他们  plural
"""

NAMES = """
Tom 汤姆
Mary 玛丽
John 约翰
Anna 安娜
Lucy 露西
Peter 彼得
David 大卫
Linda 琳达
"""

# Relatives drop 的 after a pronoun: my mother is 我妈妈.
RELATIVES = """
mother 妈妈
father 爸爸
older_brother 哥哥
younger_brother 弟弟
older_sister 姐姐
younger_sister 妹妹
grandmother 奶奶
grandfather 爷爷
son 儿子
daughter 女儿
uncle 叔叔
aunt 阿姨
"""

# Singular, plural, Chinese, measure word, 1 if it is an occupation.
PEOPLE = """
teacher teachers 老师 位 1
doctor doctors 医生 位 1
nurse nurses 护士 位 1
student students 学生 个 1
driver drivers 司机 位 1
singer singers 歌手 位 1
writer writers 作家 位 1
worker workers 工人 个 1
farmer farmers 农民 个 1
friend friends 朋友 个 0
neighbor neighbors 邻居 个 0
classmate classmates 同学 个 0
boy boys 男孩 个 0
girl girls 女孩 个 0
man men 男人 个 0
woman women 女人 个 0
child children 孩子 个 0
"""

# Singular, plural, Chinese, measure word, group.
NOUNS = """
book books 书 本 reading
magazine magazines 杂志 本 reading
novel novels 小说 本 reading
dictionary dictionaries 词典 本 reading
newspaper newspapers 报纸 份 reading
letter letters 信 封 writing
poem poems 诗 首 writing
story stories 故事 个 writing
apple apples 苹果 个 food
orange oranges 橙子 个 food
banana bananas 香蕉 根 food
egg eggs 鸡蛋 个 food
cake cakes 蛋糕 个 food
hamburger hamburgers 汉堡 个 food
watermelon watermelons 西瓜 个 food
tomato tomatoes 西红柿 个 food
potato potatoes 土豆 个 food
sandwich sandwiches 三明治 个 food
cat cats 猫 只 animal
dog dogs 狗 只 animal
bird birds 鸟 只 animal
rabbit rabbits 兔子 只 animal
duck ducks 鸭子 只 animal
sheep sheep 羊 只 animal
pig pigs 猪 头 animal
cow cows 牛 头 animal
horse horses 马 匹 animal
fish fish 鱼 条 animal
snake snakes 蛇 条 animal
car cars 汽车 辆 vehicle
bus buses 公共汽车 辆 vehicle
truck trucks 卡车 辆 vehicle
bicycle bicycles 自行车 辆 vehicle
shirt shirts 衬衫 件 clothes
coat coats 大衣 件 clothes
sweater sweaters 毛衣 件 clothes
skirt skirts 裙子 条 clothes
hat hats 帽子 顶 accessory
watch watches 手表 块 accessory
scarf scarves 围巾 条 accessory
table tables 桌子 张 furniture
chair chairs 椅子 把 furniture
bed beds 床 张 furniture
computer computers 电脑 台 device
camera cameras 照相机 台 device
phone phones 手机 部 device
pen pens 笔 支 stationery
pencil pencils 铅笔 支 stationery
umbrella umbrellas 雨伞 把 stationery
key keys 钥匙 把 stationery
knife knives 刀 把 stationery
map maps 地图 张 stationery
photo photos 照片 张 picture
painting paintings 画 幅 picture
ticket tickets 票 张 ticket
box boxes 盒子 个 container
bag bags 包 个 container
cup cups 杯子 个 container
bowl bowls 碗 个 container
plate plates 盘子 个 container
bottle bottles 瓶子 个 container
toy toys 玩具 个 toy
ball balls 球 个 toy
tree trees 树 棵 plant
flower flowers 花 朵 plant
song songs 歌 首 song
movie movies 电影 部 movie
room rooms 房间 个 building
house houses 房子 座 building
bridge bridges 桥 座 bridge
question questions 问题 个 question
"""

# English, Chinese, group, containers. "pair" nouns exist only in the plural.
SUBSTANCES = """
tea 茶 drink cup
coffee 咖啡 drink cup
water 水 drink glass,bottle
milk 牛奶 drink glass,bottle
juice 果汁 drink glass,bottle
beer 啤酒 drink glass,bottle
wine 葡萄酒 drink glass,bottle
soup 汤 soup bowl
rice 米饭 meal bowl
noodles 面条 meal bowl
bread 面包 meal piece
meat 肉 meal piece
shoes 鞋 footwear pair
socks 袜子 footwear pair
gloves 手套 handwear pair
"""

CONTAINERS = """
cup cups 杯
glass glasses 杯
bottle bottles 瓶
bowl bowls 碗
piece pieces 块
pair pairs 双
"""

# Base, past, participle, Chinese, groups of its objects, flags.
# Flags: n = an instant, used in the past only.
VERBS = """
buy bought bought 买 reading,food,vehicle,clothes,accessory,furniture,device,stationery,picture,ticket,container,toy,plant,animal,building,drink,meal,footwear,handwear -
sell sold sold 卖 reading,food,vehicle,clothes,accessory,furniture,device,picture,ticket,toy,animal,building,drink,meal,footwear -
read read read 看 reading,writing -
write wrote written 写 writing -
eat ate eaten 吃 food,meal -
drink drank drunk 喝 drink,soup -
order ordered ordered 点 food,drink,soup,meal -
draw drew drawn 画 animal,plant,vehicle,building,bridge -
see saw seen 看见 animal,plant,vehicle,accessory,picture,container,people n
find found found 找到 animal,accessory,device,stationery,picture,container,toy,ticket n
lose lost lost 丢 accessory,device,stationery,ticket,toy,handwear n
look_for looked_for looked_for 找 reading,animal,accessory,device,stationery,picture,toy -
wash washed washed 洗 food,clothes,container,vehicle,footwear -
repair repaired repaired 修 vehicle,furniture,device -
use used used 用 device,stationery,container -
borrow borrowed borrowed 借 reading,vehicle,device,stationery -
sing sang sung 唱 song -
watch watched watched 看 movie -
feed fed fed 喂 animal -
wear wore worn 穿 clothes,footwear -
wear wore worn 戴 accessory,handwear -
choose chose chosen 选 reading,clothes,accessory,picture,song,movie,ticket -
steal stole stolen 偷 vehicle,device,picture,accessory,ticket n
move moved moved 搬 furniture -
bring brought brought 带来 food,drink,stationery,reading,picture,toy n
answer answered answered 回答 question -
"""

# Verbs of state: like, want, with their groups; "bare" takes a generic object, "count" a counted one.
STATES = """
like liked liked 喜欢 bare
hate hated hated 讨厌 bare
want wanted wanted 想要 count
need needed needed 需要 count
have had had 有 count
"""

# Verbs with a person as object; flag s marks a state (no past, no progressive).
PERSON_VERBS = """
love loved loved 爱 s
like liked liked 喜欢 s
know knew known 认识 s
miss missed missed 想念 s
believe believed believed 相信 s
remember remembered remembered 记得 s
need needed needed 需要 s
help helped helped 帮助 -
meet met met 遇见 n
see saw seen 看见 n
thank thanked thanked 感谢 n
visit visited visited 看望 -
invite invited invited 邀请 n
look_for looked_for looked_for 找 -
wait_for waited_for waited_for 等 -
"""

# Base, past, participle, Chinese, flags: s = a skill, so "can" is 会; e = an effort that makes one tired.
ACTIVITIES = """
swim swam swum 游|泳 se
dance danced danced 跳|舞 se
run ran run 跑|步 e
sing sang sung 唱|歌 s
sleep slept slept 睡|觉 -
work worked worked 工作| e
study studied studied 学习| -
rest rested rested 休息| -
cry cried cried 哭| -
laugh laughed laughed 笑| -
cook cooked cooked 做|饭 s
take_a_walk took_a_walk taken_a_walk 散|步 -
take_a_bath took_a_bath taken_a_bath 洗|澡 -
go_shopping went_shopping gone_shopping 购|物 e
draw_pictures drew_pictures drawn_pictures 画|画 s
play_football played_football played_football 踢|足球 se
play_basketball played_basketball played_basketball 打|篮球 se
play_tennis played_tennis played_tennis 打|网球 se
play_chess played_chess played_chess 下|棋 s
play_the_piano played_the_piano played_the_piano 弹|钢琴 s
play_the_guitar played_the_guitar played_the_guitar 弹|吉他 s
play_games played_games played_games 玩|游戏 -
watch_TV watched_TV watched_TV 看|电视 -
listen_to_music listened_to_music listened_to_music 听|音乐 -
clean_the_room cleaned_the_room cleaned_the_room 打扫|房间 e
do_homework did_homework done_homework 做|作业 -
wash_the_dishes washed_the_dishes washed_the_dishes 洗|碗 -
learn_Chinese learned_Chinese learned_Chinese 学|中文 -
learn_English learned_English learned_English 学|英语 -
speak_Chinese spoke_Chinese spoken_Chinese 说|中文 s
speak_English spoke_English spoken_English 说|英语 s
speak_Japanese spoke_Japanese spoken_Japanese 说|日语 s
"""

# Preposition and article, noun, Chinese, a kind: town (one can go to or live in it) or spot.
PLACES = """
at school 学校 spot
at_the hospital 医院 spot
in_the park 公园 spot
in_the library 图书馆 spot
at_the station 车站 spot
at_the airport 机场 spot
in_the shop 商店 spot
in_the supermarket 超市 spot
in_the restaurant 餐厅 spot
at_the hotel 酒店 spot
in_the office 办公室 spot
in_the museum 博物馆 spot
at_the bank 银行 spot
in_the factory 工厂 spot
in_the classroom 教室 spot
in_the kitchen 厨房 spot
in Beijing 北京 town
in Shanghai 上海 town
in London 伦敦 town
in Paris 巴黎 town
in China 中国 town
in Japan 日本 town
in France 法国 town
in England 英国 town
"""

PAST_TIMES = """
yesterday 昨天
last_night 昨晚
this_morning 今天早上
yesterday_afternoon 昨天下午
last_week 上周
last_month 上个月
last_year 去年
"""
FUTURE_TIMES = """
tomorrow 明天
tonight 今晚
tomorrow_morning 明天早上
tomorrow_afternoon 明天下午
next_week 下周
next_month 下个月
next_year 明年
"""
HABIT_TIMES = """
every_day 每天
every_morning 每天早上
every_evening 每天晚上
every_week 每周
every_weekend 每个周末
"""
FREQUENCIES = """
often 经常
usually 通常
always 总是
sometimes 有时候
never 从不
"""

WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
WEEKDAY_DIGITS = "一二三四五六日"
MONTHS = "January February March April May June July August September October November December"

# English, comparative, superlative ("more"/"most" for long ones), Chinese, form before a noun, groups.
ADJECTIVES = """
new newer newest 新 新 reading,vehicle,clothes,accessory,furniture,device,stationery,container,toy,building
old older oldest 旧 旧 reading,vehicle,clothes,accessory,furniture,device,container,toy
big bigger biggest 大 大 food,animal,vehicle,furniture,container,toy,plant,building,bridge
small smaller smallest 小 小 food,animal,vehicle,furniture,container,toy,plant,building,bridge
expensive more_expensive most_expensive 贵 很贵的 reading,vehicle,clothes,accessory,furniture,device,picture,ticket,food,building
cheap cheaper cheapest 便宜 便宜的 reading,vehicle,clothes,accessory,furniture,device,ticket,food
beautiful more_beautiful most_beautiful 漂亮 漂亮的 clothes,accessory,picture,plant,building,bridge,animal
clean cleaner cleanest 干净 干净的 clothes,container,building,furniture
dirty dirtier dirtiest 脏 脏 clothes,container,vehicle
heavy heavier heaviest 重 很重的 furniture,container,device
long longer longest 长 很长的 writing,bridge,movie
interesting more_interesting most_interesting 有趣 有趣的 reading,writing,movie,toy,question
boring more_boring most_boring 无聊 无聊的 reading,writing,movie
important more_important most_important 重要 重要的 question,reading,writing
difficult more_difficult most_difficult 难 很难的 question
simple simpler simplest 简单 简单的 question,writing
delicious more_delicious most_delicious 好吃 好吃的 food
"""
COLORS = """
red 红色
blue 蓝色
white 白色
black 黑色
green 绿色
yellow 黄色
"""
COLORED_GROUPS = "vehicle clothes accessory furniture container stationery device"

PERSON_ADJECTIVES = """
tall taller tallest 高 permanent
young younger youngest 年轻 permanent
smart smarter smartest 聪明 permanent
kind kinder kindest 善良 permanent
famous more_famous most_famous 有名 permanent
rich richer richest 有钱 permanent
polite more_polite most_polite 有礼貌 permanent
busy busier busiest 忙 mood
happy happier happiest 高兴 mood
sad sadder saddest 难过 mood
tired more_tired most_tired 累 mood
hungry hungrier hungriest 饿 mood
thirsty thirstier thirstiest 渴 mood
angry angrier angriest 生气 mood
"""
WEATHER = """
cold colder 冷
hot hotter 热
warm warmer 暖和
cool cooler 凉快
"""
# English, Chinese, the kind of place one reaches so.
TRANSPORT = """
by_train 坐火车 town
by_plane 坐飞机 town
by_bus 坐公共汽车 spot
by_taxi 坐出租车 spot
by_bicycle 骑自行车 spot
by_car 开车 spot
on_foot 走路 spot
"""
# Where a thing can be: English preposition, noun, Chinese.
SPOTS = """
on the_table 桌子上
under the_table 桌子下面
on the_chair 椅子上
under the_chair 椅子下面
on the_bed 床上
under the_bed 床下面
in the_box 盒子里
in the_bag 包里
in the_room 房间里
in the_kitchen 厨房里
in the_car 汽车里
next_to the_door 门旁边
next_to the_window 窗户旁边
behind the_door 门后面
"""
UNITS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
